-- name: unindexed
-- Messages that are not indexed yet, in the order of their writing.
SELECT m.key, m.role, m.id, m.format, m.body, s.owner
FROM messages m JOIN windows w ON w.id = m.window_id JOIN sessions s ON s.id = w.session_id
WHERE m.key > (SELECT key FROM indexed) ORDER BY m.key LIMIT :limit

-- name: number_owner
-- The place of an owner in the order of the index: the same for all, unless an engine replaces this.
SELECT 0 AS number

-- name: set_indexed
UPDATE indexed SET key = :key

-- name: lower_indexed
-- After a deletion the newest keys may be assigned again; they must not count as indexed then.
UPDATE indexed SET key = min(key, (SELECT coalesce(max(m.key), 0) FROM messages m))

-- name: index_lag
-- How far the index is behind the newest message.
SELECT (SELECT coalesce(max(m.key), 0) FROM messages m) - (SELECT key FROM indexed)

-- name: known_languages
-- Languages whose inflected forms the engine supports: none, unless an engine replaces this.
SELECT NULL AS language WHERE 1 = 0

-- name: languages
-- Languages whose stems are in the index.
SELECT NULL AS language WHERE 1 = 0

-- name: unstemmed
-- Indexed texts without the stems of the current languages.
SELECT NULL AS key WHERE 1 = 0 LIMIT :limit

-- name: matched_messages
-- Messages by their keys, with the session where each was written; `current`: whether the window that this session
-- reads now has the message itself.
SELECT m.key, m.window_id AS window, m.position, m.id, m.turn_id AS turn, m.role, m.format, m.body, m.at,
    w.session_id AS session, CASE WHEN EXISTS (
        SELECT 1 FROM sessions s JOIN segments g ON g.window_id = s.window_id
        WHERE s.id = w.session_id AND g.source_id = m.window_id AND g.low <= m.position AND g.high > m.position
    ) THEN 1 ELSE 0 END AS current
FROM messages m JOIN windows w ON w.id = m.window_id WHERE {{among_keys}}

-- name: best_matches
-- The best matches of a search, if they are kept and in force: none, unless an engine replaces this.
SELECT NULL AS key, NULL AS usual, NULL AS matches WHERE 1 = 0

-- name: new_matches
-- The matches after a key, each with count and length in one number.
SELECT NULL AS key, NULL AS shape WHERE 1 = 0

-- name: match_shapes
-- The same of the matches with these keys.
SELECT NULL AS key, NULL AS shape WHERE 1 = 0
