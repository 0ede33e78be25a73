-- name: add_to_totals
INSERT INTO owner_totals (owner, shard, sessions, blocks) VALUES (:owner, :shard, :sessions, :blocks)
ON CONFLICT (owner, shard) DO UPDATE SET
    sessions = owner_totals.sessions + excluded.sessions, blocks = owner_totals.blocks + excluded.blocks

-- name: totals_of
SELECT
    CAST((SELECT coalesce(sum(sessions), 0) FROM owner_totals WHERE owner = :owner) AS BIGINT) AS sessions,
    CAST((SELECT coalesce(sum(blocks), 0) FROM owner_totals WHERE owner = :owner) AS BIGINT) AS blocks,
    CAST((SELECT coalesce(sum(size), 0) FROM blobs WHERE owner = :owner) AS BIGINT) AS attachments

-- name: text_bytes_of
-- The text of all messages that were written in a session.
SELECT CAST(coalesce(sum(octet_length(m.body)), 0) AS BIGINT) FROM messages m JOIN windows w ON w.id = m.window_id
WHERE w.session_id = :session

-- name: set_text_bytes
UPDATE sessions SET text_bytes = :text_bytes WHERE id = :session
