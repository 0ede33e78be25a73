-- Every statement in which PostgreSQL differs from the others.

-- name: expiry
least(coalesce(s.touched_at + s.idle_ttl, :now + 1), coalesce(s.expires_by, :now + 1))

-- name: has_tag
CAST(s.tags AS jsonb) @> to_jsonb(CAST(:tag AS text))

-- name: set_read
-- A read mark only moves forward.
INSERT INTO marks (session_id, owner, read_to, at) VALUES (:session, :owner, :read_to, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET read_to = greatest(marks.read_to, excluded.read_to), at = excluded.at

-- name: feed_after
-- Keys become visible out of order; no event beyond the horizon is shown, so none is ever overtaken.
SELECT e.key, e.session_id, {{event_columns}} FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND e.key <= :horizon AND s.id = e.session_id AND s.owner = :owner ORDER BY e.key LIMIT :limit

-- name: end_of_feed
-- Never a key that no event has: another engine, to which this store is moved, might give that one out again.
SELECT coalesce(max(key), 0) FROM events WHERE key <= :horizon

-- name: unindexed
-- Messages that the search index does not know yet, in the order of their keys, as far as none can be overtaken.
SELECT m.key, m.role, m.id, m.format, m.body, s.owner
FROM messages m JOIN windows w ON w.id = m.window_id JOIN sessions s ON s.id = w.session_id
WHERE m.key > (SELECT key FROM indexed) AND m.key <= :horizon ORDER BY m.key LIMIT :limit

-- name: lower_indexed
-- Keys are never given out again: there is nothing to lower.
SELECT key FROM indexed WHERE false

-- name: index_lag
-- How many messages the index has not read yet.
SELECT count(*) FROM messages WHERE key > (SELECT key FROM indexed)

-- name: index_message
-- Takes lists: a question for each message would cost more than the index itself.
INSERT INTO search (key, owner, words)
SELECT n.key, n.owner, CASE i.languages WHEN '{}' THEN n.words ELSE with_stems(i.languages, n.words) END
FROM indexed i CROSS JOIN (
    SELECT m.key, m.owner, CAST(nullif(m.words, '') AS tsvector)
    FROM unnest(CAST(:key AS bigint[]), CAST(:owner_token AS text[]), CAST(:text AS text[])) m (key, owner, words)
) n (key, owner, words)

-- name: known_languages
-- Those of which the server knows how words are inflected.
SELECT left(d.dictname, -5) FROM pg_ts_dict d
WHERE d.dictname ~ '^[a-z]+_stem$' AND d.dictnamespace = CAST('pg_catalog' AS regnamespace) ORDER BY 1

-- name: languages
SELECT unnest(languages) FROM indexed

-- name: set_languages
-- Everything that was indexed so far is to get the stems of these languages.
UPDATE indexed SET languages = string_to_array(:languages, ' '), unstemmed = key

-- name: unstemmed
-- The newest texts that have not got the stems of the languages of now.
SELECT s.key FROM search s WHERE s.key <= (SELECT unstemmed FROM indexed) ORDER BY s.key DESC LIMIT :limit

-- name: stem_texts
UPDATE search s SET words = with_stems(i.languages, s.words) FROM indexed i WHERE s.key BETWEEN :low AND :high

-- name: set_unstemmed
UPDATE indexed SET unstemmed = :key

-- name: stems
-- The stems of words, in every language of this store.
SELECT w, s FROM indexed i CROSS JOIN unnest(string_to_array(CAST(:words AS text), ' ')) w
CROSS JOIN LATERAL stems(i.languages, w) s

-- name: unindex_message
DELETE FROM search WHERE key = :key AND owner = :owner_token

-- name: found_messages
-- What may match, best first, among all of this owner's texts; phrases and reach are the caller's to check.
SELECT f.key, f.rank FROM (
    SELECT i.key, ts_rank(i.words, CAST(:expression AS tsquery), 1) AS rank FROM search i
    WHERE i.words @@ CAST(:expression AS tsquery)
    UNION ALL
    SELECT i.key, 0 FROM search i WHERE i.words IS NULL AND i.owner = :owner_token
) f ORDER BY f.rank DESC, f.key DESC LIMIT :limit OFFSET :offset

-- name: old_commits
-- Forgets marks that were left a day ago: whoever lost an answer has asked for it within minutes, or never will.
DELETE FROM commits WHERE at < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - 86400000

-- name: add_worker
-- Tells that a worker is at work, for the first time or again.
INSERT INTO workers (id, host, pid, boot_id, started_at) VALUES (:worker, :host, :pid, :boot_id, :now)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at

-- name: release_leases
-- A holder that closes says so: from now on its turns are anybody's to end.
UPDATE sessions SET lease_until = 0 WHERE holder = :worker AND running_id IS NOT NULL

-- name: old_workers
-- Forgets workers that were not at work since and hold nothing.
DELETE FROM workers w WHERE w.started_at < :moment
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.running_id IS NOT NULL AND s.holder = w.id)

-- name: empty_index
DELETE FROM search

-- name: index_beyond_the_messages
-- Keys are never given out again, so those of deleted messages may count as indexed.
SELECT i.key FROM indexed i CROSS JOIN keys k WHERE i.key > k.last_value

-- name: list_sessions_of_place
-- The sessions from one place, newest first, by the index of what a place is known by.
SELECT {{session_columns}} FROM sessions s
WHERE md5(s.place) = md5(CAST(:place AS TEXT)) AND s.place IS NOT NULL AND {{on_list}}
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit
