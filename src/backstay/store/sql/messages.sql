-- name: message_columns
m.id, m.turn_id AS turn, m.role, m.partial, m.format, m.body, m.at

-- name: add_message
INSERT INTO messages (window_id, position, id, turn_id, role, partial, format, body, at)
VALUES (:window, :position, :message, :turn, :role, :partial, :format, :body, :now)

-- name: messages_in
-- Messages `low` to `high` (not included) that were written in this window, oldest first. `shift` is the distance to
-- their positions in the window that reads them.
SELECT m.position + :shift AS position, {{message_columns}} FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high ORDER BY m.position LIMIT :limit

-- name: messages_in_reverse
-- The same, newest first.
SELECT m.position + :shift AS position, {{message_columns}} FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high ORDER BY m.position DESC LIMIT :limit

-- name: message_origin
-- Where a message was written. No row: no such message.
SELECT m.window_id AS window, m.position, m.turn_id AS turn FROM messages m WHERE m.id = :message

-- name: turns_back
-- The turns of the last messages in this range, newest first.
SELECT m.position, m.turn_id AS turn FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high ORDER BY m.position DESC LIMIT :limit

-- name: other_turn_before
-- The position of the last message in this range that belongs to another turn. No row: all belong to this one.
SELECT m.position, m.turn_id AS turn FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high
    AND (m.turn_id IS NULL OR m.turn_id <> :turn)
ORDER BY m.position DESC LIMIT 1

-- name: other_turn_after
-- The position of the first message in this range that belongs to another turn. No row: all belong to this one.
SELECT m.position FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high
    AND (m.turn_id IS NULL OR m.turn_id <> :turn)
ORDER BY m.position LIMIT 1

-- name: last_with_turn
-- The last message in this range that belongs to a turn. No row: none does.
SELECT m.position, m.turn_id AS turn FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high AND m.turn_id IS NOT NULL
ORDER BY m.position DESC LIMIT 1
