-- How long a lease lasts from each sign of life of its holder, in milliseconds. NULL: an earlier version took it.
-- From now on `lease_until` counts on the boot clock of the machine that `lease_boot` names, not on the server's clock.
ALTER TABLE sessions ADD COLUMN lease_ms BIGINT;
