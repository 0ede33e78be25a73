-- Statements that replace the shared ones on SQLite.

-- name: index_message
INSERT INTO search (rowid, owner, text) VALUES (:key, :owner_token, :text)

-- name: unindex_message
INSERT INTO search (search, rowid, owner, text) VALUES ('delete', :key, :owner_token, :text)

-- name: found_messages
-- The matches among all texts of this owner, best first. The caller checks whether each can still be reached.
SELECT search.rowid AS key FROM search WHERE search MATCH :expression
ORDER BY bm25(search, 1.0, 0.0), search.rowid DESC LIMIT :limit OFFSET :offset

-- name: old_commits
-- Removes the marks of writers that started before this one.
DELETE FROM commits WHERE writer < :writer

-- name: empty_index
INSERT INTO search (search) VALUES ('delete-all')

-- name: not_among
-- Excludes the sessions of these owners.
s.owner NOT IN (SELECT value FROM json_each(:except_owners))
