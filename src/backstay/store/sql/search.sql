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
-- Languages of which the engine knows how words are inflected: none, unless it says otherwise.
SELECT 1 WHERE 1 = 0

-- name: languages
-- Those whose stems are in the index.
SELECT 1 WHERE 1 = 0

-- name: unstemmed
-- Texts that have not got the stems of the languages of now.
SELECT 1 WHERE 1 = 0 LIMIT :limit

-- name: found_message
-- A message by its key, with the session it was said in.
SELECT m.window_id, m.position, m.id, m.turn_id, m.role, m.format, m.body, m.at, w.session_id
FROM messages m JOIN windows w ON w.id = m.window_id WHERE m.key = :key
