"""The operations of Backstay's own HTTP API, one module per resource."""
