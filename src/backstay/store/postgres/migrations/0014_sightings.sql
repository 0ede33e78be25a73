-- When a process on one machine first saw a lease of another machine, for processes on that machine that come later.
-- `at` counts on the boot clock that `boot_id` names; the lease is known by fence, end and boot.
CREATE TABLE sightings (
    session_id  TEXT COLLATE "C" NOT NULL,
    boot_id     TEXT COLLATE "C" NOT NULL,
    fence       BIGINT           NOT NULL,
    lease_until BIGINT           NOT NULL,
    lease_boot  TEXT             NOT NULL,
    at          BIGINT           NOT NULL,
    PRIMARY KEY (session_id, boot_id)
);
