-- How long a lease lasts from each sign of life of its holder, in milliseconds. NULL: an earlier version took it.
ALTER TABLE sessions ADD COLUMN lease_ms INTEGER;
