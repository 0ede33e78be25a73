"""Following events: the notifier that wakes readers, and the readers."""
