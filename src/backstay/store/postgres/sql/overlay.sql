-- Statements that replace the shared ones on PostgreSQL.

-- name: expiry
least(coalesce(s.touched_at + s.idle_ttl, :now + 1), coalesce(s.expires_by, :now + 1))

-- name: has_tag
CAST(s.tags AS jsonb) @> to_jsonb(CAST(:tag AS text))

-- name: session_at
-- The same, but no row while commits wait for a standby: a wait may have been cut short, so the session that a reader
-- sees may not be on the standby yet. Then the verb must run, whose commit waits for both.
{{session_at}} AND current_setting('synchronous_standby_names') = ''

-- name: set_read
-- A read mark only moves forward.
INSERT INTO marks (session_id, owner, read_to, at) VALUES (:session, :owner, :read_to, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET read_to = greatest(marks.read_to, excluded.read_to), at = excluded.at

-- name: feed_after
-- Keys become visible out of order. Events beyond the horizon are left out, so that no earlier one appears later.
SELECT {{event_columns}}, e.key AS position, e.session_id AS session FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND e.key <= :horizon AND s.id = e.session_id AND s.owner = :owner AND {{is_visible}}
ORDER BY e.key LIMIT :limit

-- name: end_of_feed
-- Never a key without an event: after a move, another engine might assign that key again.
SELECT coalesce((SELECT e.key FROM events e WHERE e.key <= :horizon AND {{is_visible}} ORDER BY e.key DESC LIMIT 1), 0)

-- name: unindexed
-- Messages that are not indexed yet, in the order of their keys, up to the horizon.
SELECT m.key, m.role, m.id, m.format, m.body, s.owner
FROM messages m JOIN windows w ON w.id = m.window_id JOIN sessions s ON s.id = w.session_id
WHERE m.key > (SELECT key FROM indexed) AND m.key <= :horizon ORDER BY m.key LIMIT :limit

-- name: lower_indexed
-- Keys are never assigned again: there is nothing to lower.
SELECT key FROM indexed WHERE false

-- name: count_rewind
-- Keys are never assigned again, and no matches are kept.
SELECT key FROM indexed WHERE false

-- name: index_lag
-- The number of messages that are not indexed yet.
SELECT count(*) FROM messages WHERE key > (SELECT key FROM indexed)

-- name: index_message
-- Takes lists: a query for each message would cost more than the index itself.
INSERT INTO search (key, owner, words)
SELECT n.key, n.owner, CASE i.languages WHEN '{}' THEN n.words ELSE with_stems(i.languages, n.words) END
FROM indexed i CROSS JOIN (
    SELECT m.key, m.owner, CAST(nullif(m.words, '') AS tsvector)
    FROM unnest(CAST(:key AS bigint[]), CAST(:owner_token AS text[]), CAST(:text AS text[])) m (key, owner, words)
) n (key, owner, words)

-- name: known_languages
-- The languages for which the server has a stemmer.
SELECT left(d.dictname, -5) AS language FROM pg_ts_dict d
WHERE d.dictname ~ '^[a-z]+_stem$' AND d.dictnamespace = CAST('pg_catalog' AS regnamespace) ORDER BY 1

-- name: languages
SELECT unnest(languages) AS language FROM indexed

-- name: set_languages
-- All messages indexed so far are marked to get the stems of these languages.
UPDATE indexed SET languages = string_to_array(:languages, ' '), unstemmed = key

-- name: unstemmed
-- The newest texts without the stems of the current languages.
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
-- The possible matches among all texts of this owner, best first. The caller checks phrases, and whether each can
-- still be reached.
SELECT f.key FROM (
    SELECT i.key, ts_rank(i.words, CAST(:expression AS tsquery), 1) AS rank FROM search i
    WHERE i.words @@ CAST(:expression AS tsquery)
    UNION ALL
    SELECT i.key, 0 FROM search i WHERE i.words IS NULL AND i.owner = :owner_token
) f ORDER BY f.rank DESC, f.key DESC LIMIT :limit OFFSET :offset

-- name: old_commits
-- Removes marks that are a day old: a worker looks up a lost commit within minutes, or never.
DELETE FROM commits WHERE at < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - 86400000

-- name: any_old_commits
SELECT 1 FROM commits WHERE at < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - 86400000 LIMIT 1

-- name: any_old_workers
SELECT 1 FROM workers w WHERE w.started_at < :moment
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.running_id IS NOT NULL AND s.holder = w.id)
    AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.holder = w.id) LIMIT 1

-- name: add_worker
-- Registers a worker, for the first time or again.
INSERT INTO workers (id, host, pid, boot_id, started_at) VALUES (:worker, :host, :pid, :boot_id, :now)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at

-- name: release_leases
-- A holder that closes gives up its leases: from now on any worker may end its turns.
UPDATE sessions SET lease_until = 0 WHERE holder = :worker AND running_id IS NOT NULL

-- name: release_gateways
UPDATE gateways SET lease_until = 0 WHERE holder = :worker

-- name: old_workers
-- Removes workers that were not registered since and hold nothing.
DELETE FROM workers w WHERE w.started_at < :moment
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.running_id IS NOT NULL AND s.holder = w.id)
    AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.holder = w.id)

-- name: empty_index
DELETE FROM search

-- name: index_beyond_the_messages
-- Keys are never assigned again, so those of deleted messages may count as indexed.
SELECT i.key FROM indexed i CROSS JOIN keys k WHERE i.key > k.last_value

-- name: list_sessions_of_place
-- The sessions of one place, newest first, by the index on the hash of the place.
SELECT {{session_columns}} FROM sessions s
WHERE md5(s.place) = md5(CAST(:place AS TEXT)) AND s.place IS NOT NULL AND {{on_list}}
ORDER BY s.active_at DESC, s.id DESC LIMIT :limit

-- name: not_among
-- Excludes the sessions of these owners.
s.owner NOT IN (SELECT json_array_elements_text(CAST(:except_owners AS json)))

-- name: sightings
-- The leases of other machines that were seen on this boot of this machine, and when.
SELECT session_id, fence, lease_until, lease_boot, at FROM sightings WHERE boot_id = :boot_id

-- name: add_sightings
-- Stores when leases were first seen. One that is stored already keeps its earlier time.
INSERT INTO sightings AS known (session_id, boot_id, fence, lease_until, lease_boot, at)
SELECT * FROM unnest(
    CAST(:session AS text[]), CAST(:boot_id AS text[]), CAST(:fence AS bigint[]), CAST(:lease_until AS bigint[]),
    CAST(:lease_boot AS text[]), CAST(:at AS bigint[]))
ON CONFLICT (session_id, boot_id) DO UPDATE
SET fence = excluded.fence, lease_until = excluded.lease_until, lease_boot = excluded.lease_boot, at = excluded.at
WHERE (known.fence, known.lease_until, known.lease_boot)
    IS DISTINCT FROM (excluded.fence, excluded.lease_until, excluded.lease_boot)

-- name: any_old_sightings
SELECT 1 FROM sightings WHERE NOT EXISTS (
    SELECT 1 FROM sessions s WHERE s.id = sightings.session_id AND s.running_id IS NOT NULL
        AND s.fence = sightings.fence AND s.lease_until = sightings.lease_until) LIMIT 1

-- name: old_sightings
-- Removes sightings of leases that are no longer current.
DELETE FROM sightings WHERE NOT EXISTS (
    SELECT 1 FROM sessions s WHERE s.id = sightings.session_id AND s.running_id IS NOT NULL
        AND s.fence = sightings.fence AND s.lease_until = sightings.lease_until)

-- name: among_keys
m.key = ANY (CAST(translate(CAST(:keys AS text), '[]', '{}') AS bigint[]))

-- name: among_sessions
s.id = ANY (ARRAY(SELECT json_array_elements_text(CAST(:sessions AS json))))
