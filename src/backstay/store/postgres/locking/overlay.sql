-- Statements that lock what they read, because the verb that runs them is about to write. A lock that must be held
-- before the statement looks is taken by a statement before it.

-- name: door
-- Every write to a session locks its row first.
{{door}} FOR NO KEY UPDATE OF s

-- name: upload
-- Two who send the same upload take turns.
{{upload}} FOR UPDATE

-- name: claimable
-- Two workers never want the same turn.
{{claimable}} FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: lapsed_sessions
-- Not those that somebody writes just now.
{{lapsed_sessions}} FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: foldable_turns
-- Their sessions can be written meanwhile, but not deleted.
SELECT t.id, t.session_id, t.first_event FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.first_event IS NOT NULL AND t.state = 'ended' AND t.ended_at <= :moment
LIMIT :limit FOR UPDATE OF t SKIP LOCKED FOR KEY SHARE OF s SKIP LOCKED

-- name: forgotten_blobs
{{forgotten_blobs}} FOR UPDATE OF b SKIP LOCKED

-- name: bury_session
-- Waits for those who fold the session's turns.
SELECT id FROM sessions WHERE id = :session FOR UPDATE;
{{bury_session}}

-- name: whole_family
-- Nobody forks or deletes in the family until this deletion is done.
SELECT pg_advisory_xact_lock(1113815382, hashtext(s.owner)) FROM sessions s WHERE s.id = :session;
{{whole_family}}

-- name: unindexed
-- One indexer at a time.
SELECT key FROM indexed FOR UPDATE;
{{unindexed}}

-- name: unstemmed
SELECT key FROM indexed FOR UPDATE;
{{unstemmed}}

-- name: languages
SELECT key FROM indexed FOR UPDATE;
{{languages}}
