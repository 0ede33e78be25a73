-- name: unindexed
-- Messages that the search index does not know yet, in the order they were written.
SELECT m.key, m.role, m.id, m.format, m.body, s.owner
FROM messages m JOIN windows w ON w.id = m.window_id JOIN sessions s ON s.id = w.session_id
WHERE m.key > (SELECT key FROM indexed) ORDER BY m.key LIMIT :limit

-- name: set_indexed
UPDATE indexed SET key = :key

-- name: lower_indexed
-- After a deletion the newest keys may be given out again; they must not count as indexed then.
UPDATE indexed SET key = min(key, (SELECT coalesce(max(m.key), 0) FROM messages m))

-- name: index_lag
-- How far the index is behind the newest message.
SELECT (SELECT coalesce(max(m.key), 0) FROM messages m) - (SELECT key FROM indexed)

-- name: known_languages
-- Languages whose inflected forms the engine knows: none, unless an engine replaces this.
SELECT NULL AS language WHERE 1 = 0

-- name: languages
-- Languages whose stems are in the index.
SELECT NULL AS language WHERE 1 = 0

-- name: unstemmed
-- Indexed texts without the stems of the current languages.
SELECT NULL AS key WHERE 1 = 0 LIMIT :limit

-- name: found_message
-- A message by its key, with the session where it was written.
SELECT m.window_id AS window, m.position, m.id, m.turn_id AS turn, m.role, m.format, m.body, m.at, w.session_id AS session
FROM messages m JOIN windows w ON w.id = m.window_id WHERE m.key = :key
