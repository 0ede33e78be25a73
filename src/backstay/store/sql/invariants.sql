-- The invariants of every database. Each statement lists the rows that break one; none may find any. Sessions that are
-- being imported are left out.

-- name: events_with_a_gap
-- A fold counts as many events as it replaces.
SELECT s.id FROM sessions s JOIN events e ON e.session_id = s.id WHERE s.state <> 'deleted' GROUP BY s.id, s.last_event
HAVING sum(e.last - e.number + 1) <> s.last_event OR max(e.last) <> s.last_event OR min(e.number) <> 1

-- name: sessions_without_events
SELECT s.id FROM sessions s WHERE s.id NOT IN (SELECT session_id FROM events) AND NOT {{is_hidden}}

-- name: two_running_turns
SELECT session_id FROM turns WHERE state = 'running' GROUP BY session_id HAVING count(*) > 1

-- name: running_turns_unknown_to_the_session
SELECT t.session_id FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.state = 'running' AND s.running_id IS DISTINCT FROM t.id
    AND (t.taken_by IS NULL OR t.taken_by IS DISTINCT FROM s.running_id) AND NOT {{is_hidden}}

-- name: sessions_without_their_running_turn
SELECT s.id FROM sessions s WHERE s.running_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = s.running_id AND t.state = 'running')

-- name: miscounted_queues
SELECT s.id FROM sessions s WHERE s.waiting <>
    (SELECT count(*) FROM turns t WHERE t.session_id = s.id AND t.state = 'waiting') AND NOT {{is_hidden}}

-- name: miscounted_holds
SELECT s.id FROM sessions s WHERE s.held <>
    (SELECT count(*) FROM turns t WHERE t.session_id = s.id AND t.state = 'waiting' AND t.held = 1)
    AND NOT {{is_hidden}}

-- name: miscounted_windows
-- The own messages of a window lie between its start and the length in the session row.
SELECT s.id FROM sessions s WHERE s.state <> 'deleted'
    AND (SELECT count(*) FROM messages m WHERE m.window_id = s.window_id AND m.position >= s.start) <> s.length - s.start

-- name: miscounted_text
-- The text of a session: its own messages, the inputs of its waiting turns, events with text of a person, and drafts.
SELECT s.id FROM sessions s WHERE s.state <> 'deleted' AND s.text_bytes <> (
    SELECT coalesce(sum(octet_length(m.body)), 0) FROM messages m JOIN windows w ON w.id = m.window_id
    WHERE w.session_id = s.id
) + (SELECT coalesce(sum(octet_length(t.input)), 0) FROM turns t WHERE t.session_id = s.id)
+ (
    SELECT coalesce(sum(octet_length(e.body)), 0) FROM events e WHERE e.session_id = s.id AND e.kind IN
    ('turn_submitted', 'turn_edited', 'session_renamed', 'session_tagged', 'session_annotated', 'address_pointed')
) + (SELECT coalesce(sum(octet_length(k.draft)), 0) FROM marks k WHERE k.session_id = s.id)

-- name: miscounted_totals
-- Text is counted in blocks of 16 KiB per session.
SELECT s.owner FROM (
    SELECT owner, count(*) AS sessions, sum((text_bytes + 16383) / 16384) AS blocks FROM sessions
    WHERE state <> 'deleted' GROUP BY owner
) s LEFT JOIN (
    SELECT owner, sum(sessions) AS sessions, sum(blocks) AS blocks FROM owner_totals GROUP BY owner
) t ON t.owner = s.owner
WHERE s.sessions IS DISTINCT FROM t.sessions OR s.blocks IS DISTINCT FROM t.blocks

-- name: sessions_without_their_window
SELECT s.id FROM sessions s WHERE s.state <> 'deleted'
    AND NOT EXISTS (SELECT 1 FROM windows w WHERE w.id = s.window_id AND w.session_id = s.id)

-- name: addresses_of_deleted_sessions
SELECT a.session_id FROM addresses a JOIN sessions s ON s.id = a.session_id WHERE s.state = 'deleted'

-- name: deliveries_of_deleted_sessions
SELECT d.session_id FROM deliveries d JOIN sessions s ON s.id = d.session_id WHERE s.state = 'deleted' AND d.closing = 0

-- name: deliveries_ahead_of_their_session
SELECT d.session_id FROM deliveries d JOIN sessions s ON s.id = d.session_id WHERE d.cursor > s.last_event

-- name: turns_of_deleted_sessions
SELECT t.session_id FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE s.state = 'deleted' AND NOT {{is_hidden}}

-- name: blobs_without_a_user
SELECT holder_id FROM blob_uses WHERE holder_id NOT IN (SELECT id FROM messages UNION SELECT id FROM turns)
    AND (holder_id < 'upl_' OR holder_id >= 'upm_')

-- name: index_beyond_the_messages
SELECT key FROM indexed WHERE key > (SELECT coalesce(max(key), 0) FROM messages)

-- name: living_sessions
-- Sessions of all owners, in the order of their ids.
SELECT id AS session, owner FROM sessions WHERE state <> 'deleted' AND id > :after ORDER BY id LIMIT :limit

-- name: last_move
-- The last move of the store, from or to another location. No row: it was never moved.
SELECT state, place AS location FROM moves ORDER BY at DESC LIMIT 1
