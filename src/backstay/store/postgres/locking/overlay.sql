-- Statements that lock the rows that they read, because their verb is about to write. A lock that must be held before
-- the statement reads is taken by a statement before it.

-- name: session_row
-- Every write to a session locks its row first.
{{session_row}} FOR NO KEY UPDATE OF s

-- name: gateway_row
-- Every write for a gateway locks its row first, before a session row.
{{gateway_row}} FOR NO KEY UPDATE OF g

-- name: upload
-- Two clients that send the same upload take turns.
{{upload}} FOR UPDATE

-- name: claimable
-- Two workers never claim the same turn.
{{claimable}} FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: lapsed_sessions
-- Skips sessions that are being written now.
{{lapsed_sessions}} FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: foldable_turns
-- The sessions of these turns can be written meanwhile, but not deleted.
SELECT t.id AS turn, t.session_id AS session, t.first_event AS first FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.first_event IS NOT NULL AND t.state = 'ended' AND t.ended_at <= :moment AND s.state <> 'deleted'
LIMIT :limit FOR UPDATE OF t SKIP LOCKED FOR KEY SHARE OF s SKIP LOCKED

-- name: forgotten_blobs
{{forgotten_blobs}} FOR UPDATE OF b SKIP LOCKED

-- name: bury_session
-- Waits for transactions that fold the session's turns.
SELECT id FROM sessions WHERE id = :session FOR UPDATE;
{{bury_session}}

-- name: whole_family
-- Blocks forks and deletions in the family until this deletion is done.
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
