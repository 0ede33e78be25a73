"""What a worker notices of the others: their commits, their hints and their leases."""
