-- name: window_columns
w.id, w.session_id AS session, w.parent_id AS parent, w.reason, w.start, w.event, w.at, w.summarises_id AS summarises,
w.summarises_until

-- name: window
-- No row: no such window.
SELECT {{window_columns}} FROM windows w WHERE w.id = :window

-- name: window_of_session
-- No row: this session has no such window.
SELECT {{window_columns}} FROM windows w WHERE w.id = :window AND w.session_id = :session

-- name: base_of
-- The base of a window, and the window that its summary replaces.
SELECT base_id AS base, base_until, summarises_id AS summarises, summarises_until FROM windows WHERE id = :window

-- name: lineage
-- All windows of a session, oldest first.
SELECT {{window_columns}} FROM windows w WHERE w.session_id = :session ORDER BY w.event, w.id

-- name: compaction_of
-- The window that a compaction of this one opened. No row: it was never compacted.
SELECT {{window_columns}} FROM windows w WHERE w.parent_id = :window AND w.reason = 'compaction'

-- name: add_window
INSERT INTO windows (
    id, session_id, parent_id, reason, start, base_id, base_until, summarises_id, summarises_until, event, at
) VALUES (
    :window, :session, :parent, :reason, :start, :base, :base_until, :summarises, :summarises_until, :event, :now
)

-- name: layout_columns
w.base_id AS base, w.base_until, w.summarises_id AS summarises, w.summarises_until, p.start, p.source_id AS source, p.low, p.high

-- name: layout
-- The bases of a window, repeated beside each of its segments, in reading order. No row: no such window.
SELECT {{layout_columns}} FROM windows w LEFT JOIN segments p ON p.window_id = w.id WHERE w.id = :window ORDER BY p.start

-- name: current_layout
-- The same for the current window of a session. No row: no such session of this owner.
SELECT {{layout_columns}}, s.window_id AS window, s.length, s.holder
FROM sessions s JOIN windows w ON w.id = s.window_id LEFT JOIN segments p ON p.window_id = w.id
WHERE s.id = :session AND s.owner = :owner AND s.state <> 'deleted' ORDER BY p.start

-- name: add_segment
INSERT INTO segments (window_id, start, source_id, low, high) VALUES (:window, :start, :source, :low, :high)

-- name: end_of_window
-- The position after the last message that was written in this window itself. NULL: it has none.
SELECT max(position) + 1 FROM messages WHERE window_id = :window

-- name: fork_family
-- A session and all sessions that were forked from it, directly or not, as far as they are not deleted.
WITH RECURSIVE family (id) AS (
    SELECT id FROM sessions WHERE id = :session
    UNION
    SELECT s.id FROM family f CROSS JOIN sessions s WHERE s.source_id = f.id
)
SELECT s.id FROM family f CROSS JOIN sessions s
WHERE s.id = f.id AND s.owner = :owner AND s.state <> 'deleted' ORDER BY s.id
