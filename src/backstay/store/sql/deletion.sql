-- name: whole_family
-- A session and all sessions it is related to by forks, deleted ones included.
WITH RECURSIVE
    ancestors (id) AS (
        SELECT id FROM sessions WHERE id = :session
        UNION
        SELECT s.source_id FROM ancestors a CROSS JOIN sessions s WHERE s.id = a.id AND s.source_id IS NOT NULL
    ),
    family (id) AS (
        SELECT id FROM ancestors
        UNION
        SELECT s.id FROM family f CROSS JOIN sessions s WHERE s.source_id = f.id
    )
SELECT s.id AS session, s.state FROM family f CROSS JOIN sessions s WHERE s.id = f.id ORDER BY s.id

-- name: windows_of
SELECT id FROM windows WHERE session_id = :session

-- name: messages_between
-- Messages of this window, to be removed from the index before they are dropped.
SELECT m.key, m.role, m.id, m.format, m.body FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high

-- name: drop_messages
DELETE FROM messages WHERE window_id = :window AND position >= :low AND position < :high

-- name: count_messages
SELECT count(*) FROM messages WHERE window_id = :window

-- name: drop_segments
DELETE FROM segments WHERE window_id = :window

-- name: uproot_window
-- Leaves the window only as the container of its messages: no session reads it as a window.
UPDATE windows SET base_id = NULL, base_until = NULL, summarises_id = NULL, summarises_until = NULL WHERE id = :window

-- name: drop_window
DELETE FROM windows WHERE id = :window

-- name: turn_ids
SELECT id FROM turns WHERE session_id = :session

-- name: drop_calls
DELETE FROM calls WHERE turn_id = :turn

-- name: drop_turns
DELETE FROM turns WHERE session_id = :session

-- name: drop_all_events
-- All but the tombstone. It is written first, so that the newest key of the feed is never assigned again.
DELETE FROM events WHERE session_id = :session AND number < :number

-- name: drop_marks
DELETE FROM marks WHERE session_id = :session

-- name: drop_addresses
DELETE FROM addresses WHERE session_id = :session

-- name: indexed_key
SELECT key FROM indexed
