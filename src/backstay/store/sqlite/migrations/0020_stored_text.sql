-- Drafts and events with text of a person count for the quota of their owner, too.
UPDATE sessions SET text_bytes = text_bytes + (
    SELECT coalesce(sum(octet_length(e.body)), 0) FROM events e WHERE e.session_id = sessions.id AND e.kind IN
    ('turn_submitted', 'turn_edited', 'session_renamed', 'session_tagged', 'session_annotated', 'address_pointed')
) + (
    SELECT coalesce(sum(octet_length(k.draft)), 0) FROM marks k WHERE k.session_id = sessions.id
) WHERE state <> 'deleted';

DELETE FROM owner_totals;

INSERT INTO owner_totals (owner, shard, sessions, blocks)
SELECT owner, unicode(substr(id, -1)) % 16, count(*), sum((text_bytes + 16383) / 16384)
FROM sessions WHERE state <> 'deleted' GROUP BY 1, 2;
