-- The stored amounts of each owner, for quotas. Text is counted per session, in blocks of 16 KiB; attachments by size.
-- An owner has several rows, so that its sessions do not wait for each other: `shard` follows from the session's id.
ALTER TABLE sessions ADD COLUMN text_bytes BIGINT NOT NULL DEFAULT 0;

UPDATE sessions SET text_bytes = (
    SELECT coalesce(sum(octet_length(m.body)), 0) FROM messages m JOIN windows w ON w.id = m.window_id
    WHERE w.session_id = sessions.id
) WHERE state <> 'deleted';

CREATE TABLE owner_totals (
    owner     TEXT COLLATE "C" NOT NULL,
    shard     INTEGER          NOT NULL CHECK (shard BETWEEN 0 AND 15),
    sessions  BIGINT           NOT NULL,
    blocks    BIGINT           NOT NULL,
    PRIMARY KEY (owner, shard)
);

INSERT INTO owner_totals (owner, shard, sessions, blocks)
SELECT owner, ascii(right(id, 1)) % 16, count(*), sum((text_bytes + 16383) / 16384)
FROM sessions WHERE state <> 'deleted' GROUP BY 1, 2;

CREATE INDEX blobs_of_owner ON blobs (owner, size);
