"""The values of Backstay. They do not depend on storage, time zones or threads."""
