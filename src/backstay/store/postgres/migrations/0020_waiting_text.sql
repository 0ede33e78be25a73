-- The inputs of waiting turns count for the quota of their owner, like messages.
UPDATE sessions SET text_bytes = text_bytes + (
    SELECT coalesce(sum(octet_length(t.input)), 0) FROM turns t WHERE t.session_id = sessions.id
) WHERE state <> 'deleted';

DELETE FROM owner_totals;

INSERT INTO owner_totals (owner, shard, sessions, blocks)
SELECT owner, ascii(right(id, 1)) % 16, count(*), sum((text_bytes + 16383) / 16384)
FROM sessions WHERE state <> 'deleted' GROUP BY 1, 2;
