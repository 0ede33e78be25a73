-- When a process on this machine first saw a lease of another machine, for later processes on this machine.
-- `at` counts on the boot clock that `boot_id` names; fence, end and boot identify the lease.
CREATE TABLE sightings (
    session_id  TEXT COLLATE "C" NOT NULL,
    boot_id     TEXT COLLATE "C" NOT NULL,
    fence       BIGINT           NOT NULL,
    lease_until BIGINT           NOT NULL,
    lease_boot  TEXT             NOT NULL,
    at          BIGINT           NOT NULL,
    PRIMARY KEY (session_id, boot_id)
);
