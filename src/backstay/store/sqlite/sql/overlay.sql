-- Statements that replace the shared ones on SQLite.

-- name: first_row
-- The row before the first one of an owner in the search index.
(SELECT o.number << 36 FROM search_owners o WHERE o.owner = :owner)

-- name: of_owner
-- The texts of an owner: one range of rows.
search.rowid BETWEEN {{first_row}} AND {{first_row}} + 68719476735

-- name: number_owner
-- The number of an owner in the search index; a new owner gets the next one.
INSERT INTO search_owners (owner, number) VALUES (:owner, (SELECT coalesce(max(number) + 1, 0) FROM search_owners))
ON CONFLICT (owner) DO UPDATE SET number = search_owners.number RETURNING number

-- name: index_message
INSERT INTO search (rowid, owner, text) VALUES ({{first_row}} + :key, :owner_token, :text)

-- name: unindex_message
INSERT INTO search (search, rowid, owner, text) VALUES ('delete', {{first_row}} + :key, :owner_token, :text)

-- name: found_messages
-- The matches among all texts of this owner, best first. The caller checks whether each can still be reached.
SELECT search.rowid & 68719476735 AS key FROM search
WHERE search MATCH :expression AND {{of_owner}}
ORDER BY bm25(search, 1.0, 0.0), search.rowid DESC LIMIT :limit OFFSET :offset

-- name: best_matches
SELECT b.key, b.usual, b.matches FROM best_matches b JOIN indexed i ON i.rewound = b.rewound WHERE b.query = :query

-- name: usual_length
-- The usual length of a text. No row: nothing matches.
SELECT usual_length(search) AS usual FROM search WHERE search MATCH :expression AND {{of_owner}} LIMIT 1

-- name: match_beyond
-- The match after this number of others. No row: there are fewer.
SELECT 1 FROM search WHERE search MATCH :expression AND {{of_owner}} LIMIT 1 OFFSET :count

-- name: new_matches
SELECT search.rowid & 68719476735 AS key, match_shape(search) AS shape FROM search
WHERE search MATCH :expression AND search.rowid BETWEEN {{first_row}} + :after + 1 AND {{first_row}} + 68719476735
LIMIT :limit

-- name: match_shapes
SELECT search.rowid & 68719476735 AS key, match_shape(search) AS shape FROM search
WHERE search MATCH :expression AND search.rowid IN (SELECT {{first_row}} + k.value FROM json_each(:keys) k)

-- name: rewound
SELECT rewound FROM indexed

-- name: count_rewind
UPDATE indexed SET rewound = rewound + 1

-- name: lower_indexed
-- After a deletion the newest keys may be assigned again; they must not count as indexed then.
UPDATE indexed SET key = m.key, rewound = rewound + 1
FROM (SELECT coalesce(max(key), 0) AS key FROM messages) m WHERE indexed.key > m.key

-- name: keep_best_matches
INSERT INTO best_matches (query, key, usual, matches, rewound, at)
VALUES (:query, :key, :usual, :matches, :rewound, :now)
ON CONFLICT (query) DO UPDATE SET
    key = excluded.key, usual = excluded.usual, matches = excluded.matches, rewound = excluded.rewound, at = excluded.at

-- name: drop_best_matches
-- Keeps the matches of the newest searches.
DELETE FROM best_matches WHERE query IN (
    SELECT b.query FROM best_matches b ORDER BY b.at DESC, b.query LIMIT -1 OFFSET :searches)

-- name: old_commits
-- Removes the marks of writers that started before this one.
DELETE FROM commits WHERE writer < :writer

-- name: empty_index
INSERT INTO search (search) VALUES ('delete-all')

-- name: not_among
-- Excludes the sessions of these owners.
s.owner NOT IN (SELECT value FROM json_each(:except_owners))

-- name: among_keys
m.key IN (SELECT value FROM json_each(:keys))

-- name: among_sessions
s.id IN (SELECT value FROM json_each(:sessions))
