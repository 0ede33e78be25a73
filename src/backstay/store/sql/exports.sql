-- name: source_of
-- The session that a session was forked from. No row: no such session.
SELECT source_id FROM sessions WHERE id = :session

-- name: turns_to_export
-- All turns of a session in the order they were accepted, each with its place in the queue and what it was asked by.
SELECT {{turn_columns}}, t.place, t.request_key, t.request_hash FROM turns t
WHERE t.session_id = :session ORDER BY t.event, t.id

-- name: addresses_to_export
SELECT spelling, generation FROM addresses WHERE session_id = :session AND owner = :owner ORDER BY spelling

-- name: spellings
-- All addresses of an owner.
SELECT spelling FROM addresses WHERE owner = :owner ORDER BY spelling

-- name: session_taken
-- No row: no session has this id, not even one that was deleted.
SELECT 1 FROM sessions WHERE id = :session

-- name: turn_taken
-- No row: no turn has this id.
SELECT 1 FROM turns WHERE id = :turn

-- name: import_session
-- A session as it was exported; nobody holds it.
INSERT INTO sessions (
    id, owner, state, revision, context, fence, last_event, held_event, window_id, start, length, waiting, steering,
    queued, turns, activity, touched_at, preview, title, title_by, pinned, archived, tags, family, place, source_id,
    idle_ttl, expires_by, created_at, active_at, ended_at, metadata, agent
) VALUES (
    :session, :owner, :state, :revision, :context, :fence, :last_event, :last_event, :window, :start, :length, :waiting,
    :steering, :queued, :turns, :activity, :touched_at, :preview, :title, :title_by, :pinned, :archived, :tags, :family,
    :place, :source, :idle_ttl, :expires_by, :created_at, :active_at, :ended_at, :metadata, :agent
)

-- name: import_turn
INSERT INTO turns (
    id, session_id, root_id, agent, state, outcome, reason, steer, taken_by, cancel_requested, place, event,
    first_event, format, input, request_key, request_id, request_hash, usage, created_at, started_at, ended_at, forgotten
) VALUES (
    :turn, :session, :root, :agent, :state, :outcome, :reason, :steer, :taken_by, :cancel_requested, :place, :event,
    :first_event, :format, :input, :request_key, :request_id, :request_hash, :usage, :created_at, :started_at,
    :ended_at, :forgotten
)

-- name: import_call
INSERT INTO calls (root_id, ordinal, turn_id, call_id, name, arguments_hash, approval, effect, started_at, ended_at)
VALUES (:root, :ordinal, :turn, :call, :name, :arguments_hash, :approval, :effect, :started_at, :ended_at)
