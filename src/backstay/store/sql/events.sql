-- name: add_event
INSERT INTO events (session_id, number, last, fence, turn_id, kind, format, body, source_id, low, high, at)
VALUES (:session, :number, :last, :fence, :turn, :kind, :format, :body, :source, :low, :high, :now)

-- name: event_columns
e.number, e.last, e.fence, e.at, e.turn_id AS turn, e.format, e.body, e.source_id AS source, e.low, e.high

-- name: events_after
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number > :number ORDER BY e.number LIMIT :limit

-- name: events_to_export
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number > :number AND e.number <= :last ORDER BY e.number LIMIT :limit

-- name: feed_after
-- The events of all of an owner's sessions in the order they were written.
SELECT {{event_columns}}, e.key AS position, e.session_id AS session FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND s.id = e.session_id AND s.owner = :owner AND {{is_visible}} ORDER BY e.key LIMIT :limit

-- name: is_visible
-- Not an event of a session that is being imported, and not one after the position where such an import holds the
-- feed: its events have earlier keys and come first. Clocks of machines may differ, so the feed waits 10 s longer.
e.key <= coalesce((SELECT min(f.feed_end) FROM imports f WHERE f.owner = :owner AND f.until > :now - 10000), 4611686018427387904)
    AND NOT EXISTS (SELECT 1 FROM imports i WHERE i.session_id = e.session_id)

-- name: end_of_feed
SELECT coalesce((SELECT e.key FROM events e WHERE {{is_visible}} ORDER BY e.key DESC LIMIT 1), 0)

-- name: event_containing
-- The event or fold that contains this number. No row: the number does not exist.
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number <= :number AND e.last >= :number ORDER BY e.number DESC LIMIT 1

-- name: events_of_turn
-- The events of a turn, oldest first.
SELECT e.number, e.format, e.body FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn ORDER BY e.number

-- name: events_of_running_turn
-- The events of a turn that has not ended, oldest first.
SELECT e.number, e.format, e.body FROM events e
WHERE e.session_id = :session AND e.number >= coalesce((SELECT t.first_event FROM turns t WHERE t.id = :turn), 0)
    AND e.turn_id = :turn ORDER BY e.number

-- name: first_message_of_turn
-- The first position of the messages of a turn's events. No row: the turn has no messages yet.
SELECT e.source_id AS window, e.low AS position FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn AND e.source_id IS NOT NULL
ORDER BY e.number LIMIT 1

-- name: foldable_turns
-- Ended turns whose deltas are not folded yet.
SELECT t.id AS turn, t.session_id AS session, t.first_event AS first FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.first_event IS NOT NULL AND t.state = 'ended' AND t.ended_at <= :moment AND s.state <> 'deleted' LIMIT :limit

-- name: events_to_fold
SELECT e.number, e.last, e.fence, e.turn_id AS turn, e.kind, e.format, e.body, e.source_id AS source, e.low, e.high, e.at FROM events e
WHERE e.session_id = :session AND e.number >= :first AND e.turn_id = :turn ORDER BY e.number

-- name: events_to_fence
SELECT e.number, e.last, e.fence, e.turn_id AS turn, e.kind, e.format, e.body, e.source_id AS source, e.low, e.high, e.at FROM events e
WHERE e.session_id = :session AND e.number > :number ORDER BY e.number

-- name: drop_events
DELETE FROM events WHERE session_id = :session AND number >= :first AND number <= :last

-- name: mark_folded
-- Stores that the deltas of the turn are folded.
UPDATE turns SET first_event = NULL WHERE id = :turn
