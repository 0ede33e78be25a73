-- What must hold of every database. Each statement lists what breaks it; none may find anything.

-- name: events_with_a_gap
-- Folds count for as many events as they stand for.
SELECT s.id FROM sessions s JOIN events e ON e.session_id = s.id WHERE s.state <> 'deleted' GROUP BY s.id, s.last_event
HAVING sum(e.last - e.number + 1) <> s.last_event OR max(e.last) <> s.last_event OR min(e.number) <> 1

-- name: sessions_without_a_story
SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM events)

-- name: two_running_turns
SELECT session_id FROM turns WHERE state = 'running' GROUP BY session_id HAVING count(*) > 1

-- name: running_turns_unknown_to_the_door
SELECT t.session_id FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.state = 'running' AND s.running_id IS DISTINCT FROM t.id
    AND (t.taken_by IS NULL OR t.taken_by IS DISTINCT FROM s.running_id)

-- name: doors_that_know_no_running_turn
SELECT s.id FROM sessions s WHERE s.running_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = s.running_id AND t.state = 'running')

-- name: miscounted_queues
SELECT s.id FROM sessions s WHERE s.waiting <>
    (SELECT count(*) FROM turns t WHERE t.session_id = s.id AND t.state = 'waiting')

-- name: miscounted_windows
-- What a window holds of its own lies between where it starts and how long the door says it is.
SELECT s.id FROM sessions s WHERE s.state <> 'deleted'
    AND (SELECT count(*) FROM messages m WHERE m.window_id = s.window_id AND m.position >= s.start) <> s.length - s.start

-- name: sessions_without_their_window
SELECT s.id FROM sessions s WHERE s.state <> 'deleted'
    AND NOT EXISTS (SELECT 1 FROM windows w WHERE w.id = s.window_id AND w.session_id = s.id)

-- name: addresses_of_deleted_sessions
SELECT a.session_id FROM addresses a JOIN sessions s ON s.id = a.session_id WHERE s.state = 'deleted'

-- name: turns_of_deleted_sessions
SELECT t.session_id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.state = 'deleted'

-- name: blobs_kept_for_nobody
SELECT holder_id FROM blob_uses WHERE holder_id NOT IN (SELECT id FROM messages UNION SELECT id FROM turns)
    AND (holder_id < 'upl_' OR holder_id >= 'upm_')

-- name: index_beyond_the_messages
SELECT key FROM indexed WHERE key > (SELECT coalesce(max(key), 0) FROM messages)

-- name: living_sessions
-- Sessions of all owners, in the order of their ids.
SELECT id, owner FROM sessions WHERE state <> 'deleted' AND id > :after ORDER BY id LIMIT :limit

-- name: last_move
-- Where the store is going, went, or is coming from. No row: it was never moved.
SELECT state, place FROM moves ORDER BY at DESC LIMIT 1
