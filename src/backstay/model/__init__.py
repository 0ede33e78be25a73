"""The values Backstay is made of; they know nothing of storage, time zones or threads."""
