-- Every statement in which SQLite differs from the others.

-- name: index_message
INSERT INTO search (rowid, owner, text) VALUES (:key, :owner_token, :text)

-- name: unindex_message
INSERT INTO search (search, rowid, owner, text) VALUES ('delete', :key, :owner_token, :text)

-- name: found_messages
-- What matches, best first, among all of this owner's texts; whether it can be reached is the caller's to check.
SELECT search.rowid, bm25(search, 1.0, 0.0) FROM search WHERE search MATCH :expression
ORDER BY bm25(search, 1.0, 0.0), search.rowid DESC LIMIT :limit OFFSET :offset

-- name: old_commits
-- Forgets the marks of writers that began before this one.
DELETE FROM commits WHERE writer < :writer

-- name: empty_index
INSERT INTO search (search) VALUES ('delete-all')
