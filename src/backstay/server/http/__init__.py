"""From HTTP requests to API operations and back."""
