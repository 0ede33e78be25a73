-- name: add_event
INSERT INTO events (session_id, number, last, fence, turn_id, kind, format, body, source_id, low, high, at)
VALUES (:session, :number, :last, :fence, :turn, :kind, :format, :body, :source, :low, :high, :now)

-- name: event_columns
e.number, e.last, e.fence, e.at, e.turn_id, e.format, e.body, e.source_id, e.low, e.high

-- name: events_after
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number > :number ORDER BY e.number LIMIT :limit

-- name: feed_after
-- The events of all of an owner's sessions in the order they were written.
SELECT e.key, e.session_id, {{event_columns}} FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND s.id = e.session_id AND s.owner = :owner ORDER BY e.key LIMIT :limit

-- name: end_of_feed
SELECT coalesce(max(key), 0) FROM events

-- name: event_holding
-- The event that carries this number, folded or not. No row: the number does not exist.
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number <= :number AND e.last >= :number ORDER BY e.number DESC LIMIT 1

-- name: events_of_turn
-- A turn's own events, oldest first.
SELECT e.number, e.format, e.body FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn ORDER BY e.number

-- name: first_said
-- Where the first messages stand that a turn's events speak of. No row: it has not begun.
SELECT e.source_id, e.low FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn AND e.source_id IS NOT NULL
ORDER BY e.number LIMIT 1

-- name: foldable_turns
-- Ended turns that still have deltas of their own.
SELECT t.id, t.session_id, t.first_event FROM turns t
WHERE t.first_event IS NOT NULL AND t.state = 'ended' AND t.ended_at <= :moment LIMIT :limit

-- name: events_to_fold
SELECT e.number, e.last, e.fence, e.kind, e.format, e.body, e.source_id, e.low, e.high, e.at FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn ORDER BY e.number

-- name: drop_events
DELETE FROM events WHERE session_id = :session AND number >= :first AND number <= :last

-- name: mark_folded
-- The turn's deltas are folded; there is nothing left to look at.
UPDATE turns SET first_event = NULL WHERE id = :turn
