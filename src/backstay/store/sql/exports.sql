-- name: source_of
-- The session that a session was forked from. No row: no such session.
SELECT source_id FROM sessions WHERE id = :session

-- name: turns_to_export
-- The next turns of a session in the order they were accepted, each with its place in the queue and its request.
SELECT {{turn_columns}}, t.place, t.request_owner, t.request_key, t.request_hash FROM turns t
WHERE t.session_id = :session AND (t.event, t.id) > (:event, :turn) ORDER BY t.event, t.id LIMIT :limit

-- name: sizes_of_turns
-- The size of the input of each of the next turns.
SELECT octet_length(coalesce(t.input, '')) FROM turns t
WHERE t.session_id = :session AND (t.event, t.id) > (:event, :turn) ORDER BY t.event, t.id LIMIT :limit

-- name: turns_with_calls
-- The next turns of a session that made calls, in the order they were accepted.
SELECT t.event, t.id AS turn FROM turns t
WHERE t.session_id = :session AND (t.event, t.id) > (:event, :turn)
    AND EXISTS (SELECT 1 FROM calls c WHERE c.turn_id = t.id)
ORDER BY t.event, t.id LIMIT :limit

-- name: sizes_of_messages
SELECT m.position, octet_length(m.body) AS size FROM messages m
WHERE m.window_id = :window AND m.position >= :low AND m.position < :high ORDER BY m.position LIMIT :limit

-- name: sizes_of_events
SELECT octet_length(e.body) FROM events e
WHERE e.session_id = :session AND e.number > :number AND e.number <= :last ORDER BY e.number LIMIT :limit

-- name: unfolded_turns
-- The values that a fold changes: the turns that refer to their first event, up to an event. Later turns do not count.
SELECT CAST(count(*) AS BIGINT) AS turns, CAST(coalesce(sum(t.first_event), 0) AS BIGINT) AS first_events FROM turns t
WHERE t.session_id = :session AND t.first_event <= :last

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

-- name: stage_session
-- A session that is being imported, or an ancestor of one. It counts as deleted until it is shown.
INSERT INTO sessions (
    id, owner, state, revision, context, fence, last_event, held_event, window_id, start, length, touched_at,
    source_id, created_at, active_at, ended_at
) VALUES (:session, :owner, 'deleted', 2, 0, 1, 1, 1, :window, 0, 0, :now, :source, :now, :now, :now)

-- name: add_import
INSERT INTO imports (session_id, import_id, owner, until) VALUES (:session, :import_id, :owner, :until)

-- name: renew_import
-- Renews the lease of an import. No row changed: it was given up.
UPDATE imports SET until = :until WHERE import_id = :import_id AND until > :now

-- name: give_up_import
UPDATE imports SET until = 0 WHERE import_id = :import_id

-- name: lock_feed
-- From here on the owner's feed waits until the import has ended.
UPDATE imports SET feed_end = (SELECT coalesce(max(key), 0) FROM events) WHERE import_id = :import_id

-- name: drop_import
DELETE FROM imports WHERE import_id = :import_id

-- name: given_up_imports
-- Imports whose lease has ended.
SELECT DISTINCT import_id FROM imports WHERE until <= :moment ORDER BY import_id LIMIT :limit

-- name: sessions_of_import
-- The session that is imported and those it was forked from.
SELECT i.session_id AS session, i.owner FROM imports i JOIN sessions s ON s.id = i.session_id WHERE i.import_id = :import_id
ORDER BY i.session_id

-- name: unfinished_imports
SELECT
    count(DISTINCT import_id) AS unfinished, count(DISTINCT CASE WHEN until <= :now THEN import_id END) AS given_up
FROM imports

-- name: is_hidden
-- The session is being imported.
EXISTS (SELECT 1 FROM imports i WHERE i.session_id = s.id)

-- name: show_session
-- Makes an imported session visible, as it was exported and without a holder.
UPDATE sessions SET
    state = :state, revision = :revision, context = :context, fence = :fence, last_event = :last_event,
    held_event = :last_event, window_id = :window, start = :start, length = :length, waiting = :waiting,
    steering = :steering, queued = :queued, turns = :turns, activity = :activity, touched_at = :touched_at,
    preview = :preview, title = :title, title_by = :title_by, pinned = :pinned, archived = :archived, tags = :tags,
    family = :family, place = :place, idle_ttl = :idle_ttl, expires_by = :expires_by, created_at = :created_at,
    active_at = :active_at, ended_at = :ended_at, metadata = :metadata, agent = :agent, held = :held,
    text_bytes = :text_bytes
WHERE id = :session

-- name: own_request
-- Lets the request id of the owner find this turn.
UPDATE turns SET request_owner = :owner WHERE id = :turn

-- name: drop_some_events
DELETE FROM events WHERE key IN (SELECT e.key FROM events e WHERE e.session_id = :session LIMIT :limit)

-- name: some_turns
SELECT id FROM turns WHERE session_id = :session LIMIT :limit

-- name: drop_turn
DELETE FROM turns WHERE id = :turn

-- name: some_messages
SELECT m.key, m.role, m.id, m.format, m.body, m.position, m.window_id AS window
FROM windows w JOIN messages m ON m.window_id = w.id WHERE w.session_id = :session LIMIT :limit

-- name: some_segments
SELECT g.window_id AS window, g.start FROM windows w JOIN segments g ON g.window_id = w.id
WHERE w.session_id = :session LIMIT :limit

-- name: drop_segment
DELETE FROM segments WHERE window_id = :window AND start = :start

-- name: uproot_windows
UPDATE windows SET base_id = NULL, base_until = NULL, summarises_id = NULL, summarises_until = NULL
WHERE session_id = :session AND (base_id IS NOT NULL OR summarises_id IS NOT NULL)

-- name: drop_windows
DELETE FROM windows WHERE session_id = :session

-- name: drop_session
DELETE FROM sessions WHERE id = :session

-- name: import_turn
INSERT INTO turns (
    id, session_id, root_id, agent, state, outcome, reason, code, hint, steer, taken_by, cancel_requested, place,
    event, first_event, format, input, request_owner, request_key, request_id, request_hash, usage, created_at, started_at,
    ended_at, forgotten, held
) VALUES (
    :turn, :session, :root, :agent, :state, :outcome, :reason, :code, :hint, :steer, :taken_by, :cancel_requested,
    :place, :event, :first_event, :format, :input, :request_owner, :request_key, :request_id, :request_hash, :usage, :created_at,
    :started_at, :ended_at, :forgotten, :held
)

-- name: import_call
INSERT INTO calls (
    root_id, ordinal, turn_id, call_id, name, arguments_hash, approval, effect, started_at, ended_at, run_again
) VALUES (
    :root, :ordinal, :turn, :call, :name, :arguments_hash, :approval, :effect, :started_at, :ended_at, :run_again
)
