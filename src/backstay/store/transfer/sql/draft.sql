-- A draft: a document in a temporary SQLite database of its own, which is not part of any store.
-- `n` is the position of a record in the document, `location` its location for errors, `body` the record as JSON.

-- name: create_messages
CREATE TABLE messages (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, window TEXT NOT NULL, position INTEGER NOT NULL, turn TEXT,
    at INTEGER NOT NULL, location TEXT NOT NULL, body BLOB NOT NULL
)

-- name: create_messages_of_window
CREATE INDEX messages_of_window ON messages (window, n)

-- name: create_messages_by_time
CREATE INDEX messages_by_time ON messages (at, n)

-- name: create_messages_of_turn
CREATE INDEX messages_of_turn ON messages (turn) WHERE turn IS NOT NULL

-- name: create_turns
CREATE TABLE turns (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, location TEXT NOT NULL, body BLOB NOT NULL)

-- name: create_calls
CREATE TABLE calls (
    n INTEGER PRIMARY KEY, root TEXT NOT NULL, ordinal INTEGER NOT NULL, location TEXT NOT NULL, body BLOB NOT NULL
)

-- name: create_calls_of_root
CREATE INDEX calls_of_root ON calls (root, ordinal, n)

-- name: create_events
CREATE TABLE events (n INTEGER PRIMARY KEY, number INTEGER NOT NULL, location TEXT NOT NULL, body BLOB NOT NULL)

-- name: create_events_by_number
CREATE INDEX events_by_number ON events (number)

-- name: create_attachments
CREATE TABLE attachments (n INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, location TEXT NOT NULL, body BLOB NOT NULL)

-- name: create_chunks
CREATE TABLE chunks (n INTEGER PRIMARY KEY, attachment INTEGER NOT NULL, bytes BLOB NOT NULL)

-- name: create_chunks_of_attachment
CREATE INDEX chunks_of_attachment ON chunks (attachment, n)

-- name: create_keys
CREATE TABLE keys (scope INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (scope, key)) WITHOUT ROWID

-- name: create_names
CREATE TABLE names (old TEXT NOT NULL PRIMARY KEY, new TEXT NOT NULL) WITHOUT ROWID

-- name: add_message
INSERT INTO messages (id, window, position, turn, at, location, body) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: add_turn
INSERT INTO turns (id, location, body) VALUES (?, ?, ?)

-- name: add_call
INSERT INTO calls (root, ordinal, location, body) VALUES (?, ?, ?, ?)

-- name: add_event
INSERT INTO events (number, location, body) VALUES (?, ?, ?)

-- name: add_attachment
INSERT INTO attachments (hash, location, body) VALUES (?, ?, ?)

-- name: add_chunk
INSERT INTO chunks (attachment, bytes) VALUES ((SELECT max(n) FROM attachments), ?)

-- name: messages_of
SELECT location, body FROM messages WHERE window = ? ORDER BY n

-- name: messages_by_time
SELECT window, body FROM messages ORDER BY at, n

-- name: message
SELECT 1 FROM messages WHERE id = ?

-- name: message_ids
SELECT id FROM messages

-- name: end_of_window
SELECT max(position) + 1 FROM messages WHERE window = ?

-- name: turns
SELECT location, body FROM turns ORDER BY n

-- name: turn
SELECT body FROM turns WHERE id = ?

-- name: has_turn
SELECT 1 FROM turns WHERE id = ?

-- name: turns_named
SELECT id, (SELECT count(*) FROM messages m WHERE m.turn = turns.id) FROM turns
UNION ALL
SELECT turn, count(*) FROM messages m WHERE turn IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = m.turn) GROUP BY turn

-- name: calls
SELECT location, body FROM calls ORDER BY root, ordinal, n

-- name: call
SELECT 1 FROM calls WHERE root = ? AND ordinal = ?

-- name: events
SELECT location, body FROM events ORDER BY n

-- name: event_before
SELECT body FROM events WHERE number <= ? ORDER BY number DESC LIMIT 1

-- name: attachments
SELECT location, body FROM attachments ORDER BY n

-- name: chunks_of
SELECT bytes FROM chunks WHERE attachment = (SELECT n FROM attachments WHERE hash = ?) ORDER BY n

-- name: add_key
INSERT INTO keys (scope, key) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: drop_key
DELETE FROM keys WHERE scope = ? AND key = ?

-- name: key
SELECT 1 FROM keys WHERE scope = ? AND key = ?

-- name: keys
SELECT key FROM keys WHERE scope = ?

-- name: add_name
INSERT INTO names (old, new) VALUES (?, ?)

-- name: name
SELECT new FROM names WHERE old = ?
