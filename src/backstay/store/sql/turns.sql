-- name: turn_columns
t.id, t.session_id AS session, t.root_id AS root, t.agent, t.state, t.outcome, t.reason, t.code, t.hint, t.steer, t.taken_by, t.cancel_requested, t.format,
t.input, t.request_id, t.usage, t.created_at, t.started_at, t.ended_at, t.event, t.first_event, t.forgotten, t.held,
CASE WHEN t.outcome = 'interrupted' THEN (
    SELECT n.id FROM turns n WHERE n.root_id = t.root_id AND n.root_id <> n.id AND n.event > t.event ORDER BY n.event LIMIT 1
) END AS continued_by

-- name: turn
-- No row: no such turn of this owner.
SELECT {{turn_columns}} FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.id = :turn AND s.owner = :owner AND s.state <> 'deleted'

-- name: turn_of_request
-- The turn of a request of this owner. No row: the request was never accepted.
SELECT {{turn_columns}}, t.request_key, t.request_hash FROM turns t
WHERE t.request_owner = :owner AND t.request_id = :request_id

-- name: add_turn
INSERT INTO turns (
    id, session_id, root_id, agent, state, outcome, steer, place, event, first_event, format, input,
    request_owner, request_key, request_id, request_hash, created_at, started_at, ended_at
) VALUES (
    :turn, :session, :root, :agent, :state, :outcome, :steer, :place, :event, :first_event, :format, :input,
    :request_owner, :request_key, :request_id, :request_hash, :now, :started_at, :ended_at
)

-- name: start_turn
-- Starts a waiting turn, whose input is a message now.
UPDATE turns SET state = 'running', input = NULL, started_at = :now, first_event = :first_event WHERE id = :turn

-- name: end_turn
UPDATE turns SET
    state = 'ended', outcome = :outcome, reason = :reason, code = :code, hint = :hint, input = NULL, usage = :usage,
    ended_at = :now, held = 0
WHERE id = :turn

-- name: hold_turn
UPDATE turns SET held = 1 WHERE id = :turn

-- name: release_turn
UPDATE turns SET held = 0 WHERE id = :turn

-- name: forget_turn
UPDATE turns SET forgotten = 1 WHERE id = :turn

-- name: request_cancel
UPDATE turns SET cancel_requested = 1 WHERE id = :turn

-- name: edit_turn
UPDATE turns SET input = :input, format = :format WHERE id = :turn

-- name: next_waiting
-- The first waiting turn that is not held. No row: there is none.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL AND t.held = 0 ORDER BY t.place LIMIT 1

-- name: waiting_turns
-- The waiting turns of a session, in the order of their start.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL ORDER BY t.place

-- name: queue_order
SELECT t.id AS turn, t.place FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL ORDER BY t.place

-- name: move_turn
UPDATE turns SET place = :place WHERE id = :turn

-- name: steering_turns
-- Waiting inputs that are meant for the running turn.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL AND t.steer = 1 AND t.held = 0
ORDER BY t.place

-- name: take_steering
UPDATE turns SET taken_by = :taken_by, started_at = :now WHERE id = :turn

-- name: taken_turns
-- Steering inputs that this turn took.
SELECT {{turn_columns}} FROM turns t WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by = :turn

-- name: awaited
-- Whether a turn waits for this agent, in a busy session or not. No row: none does.
SELECT t.id FROM turns t WHERE t.agent = :agent AND t.state = 'waiting' AND t.taken_by IS NULL AND t.held = 0 LIMIT 1

-- name: claimable
-- The oldest waiting turn for this agent in a session without a running turn. No row: nothing to do.
SELECT t.id AS turn, t.session_id AS session, s.owner FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.agent = :agent AND t.state = 'waiting' AND t.taken_by IS NULL AND t.held = 0 AND s.running_id IS NULL
    AND (s.owner = :owner OR :owner IS NULL) AND {{not_among}}
    AND NOT EXISTS (
        SELECT 1 FROM turns e WHERE e.session_id = t.session_id AND e.state = 'waiting' AND e.taken_by IS NULL
            AND e.held = 0 AND e.place < t.place
    )
ORDER BY t.id LIMIT 1

-- name: load
-- Both counts read only partial indexes.
SELECT
    (SELECT count(*) FROM sessions WHERE running_id IS NOT NULL) AS running,
    (SELECT count(*) FROM turns WHERE state = 'waiting' AND taken_by IS NULL AND held = 0) AS waiting

-- name: add_call
-- A call that needs approval has no start time yet.
INSERT INTO calls (root_id, ordinal, turn_id, call_id, name, arguments_hash, approval, effect, started_at)
VALUES (:root, :ordinal, :turn, :call, :name, :arguments_hash, :approval, 'called', :started_at)

-- name: repeat_call
-- Repeats a call, in a turn that continues the interrupted one. The decision of a person on its arguments is kept.
UPDATE calls SET turn_id = :turn, call_id = :call, effect = 'called', started_at = :started_at, ended_at = NULL,
    run_again = 'none'
WHERE root_id = :root AND ordinal = :ordinal

-- name: interrupted_turns
-- Turns that were interrupted lately, if they are the last of a session without running or waiting turns.
SELECT t.id AS turn, s.owner FROM turns t CROSS JOIN sessions s
WHERE t.outcome = 'interrupted' AND t.ended_at >= :moment AND t.agent = :agent AND s.id = t.session_id
    AND t.taken_by IS NULL AND s.state = 'open' AND s.running_id IS NULL AND s.waiting = s.held
    AND t.held = 0 AND NOT EXISTS (
        SELECT 1 FROM turns l WHERE l.session_id = t.session_id AND l.event > t.event
            AND (l.taken_by IS NULL OR l.taken_by <> t.id)
    )
    AND (SELECT count(*) FROM turns r WHERE r.session_id = t.session_id AND r.root_id = t.root_id) <= :most
ORDER BY t.ended_at LIMIT :limit

-- name: decided_turns
-- Interrupted turns that continue now: a person has decided about a call of theirs that had to wait, or that may have
-- run. Each is the last of a session without running or waiting turns.
SELECT DISTINCT t.id AS turn, s.owner FROM calls c
JOIN turns t ON t.id = (
    SELECT l.id FROM turns l WHERE l.id = c.root_id OR (l.root_id = c.root_id AND l.root_id <> l.id)
    ORDER BY l.event DESC LIMIT 1
)
JOIN sessions s ON s.id = t.session_id
WHERE {{is_decided}} AND t.outcome = 'interrupted' AND t.agent = :agent AND t.taken_by IS NULL AND t.held = 0
    AND s.state = 'open' AND s.running_id IS NULL AND s.waiting = s.held
    AND (SELECT count(*) FROM turns r WHERE r.root_id = t.root_id AND r.root_id <> r.id) < :most
LIMIT :limit

-- name: is_decided
((c.effect = 'called' AND c.approval IN ('approved', 'denied')) OR (c.effect = 'unknown' AND c.run_again = 'approved'))

-- name: call_in_ledger
-- No row: the root turn has no such call.
SELECT {{call_columns}} FROM calls c WHERE c.root_id = :root AND c.ordinal = :ordinal

-- name: next_call
-- The ordinal of the next call of a root turn, and whether its turn has made a call with this id already.
SELECT
    (SELECT coalesce(max(ordinal) + 1, 0) FROM calls WHERE root_id = :root) AS ordinal,
    (SELECT count(*) FROM calls WHERE turn_id = :turn AND call_id = :call) AS made

-- name: call_columns
c.turn_id AS turn, c.root_id AS root, c.ordinal, c.call_id AS call, c.name, c.arguments_hash, c.approval, c.effect, c.started_at,
c.ended_at, c.run_again

-- name: call
-- No row: the turn made no such call.
SELECT {{call_columns}} FROM calls c WHERE c.turn_id = :turn AND c.call_id = :call

-- name: calls
SELECT {{call_columns}} FROM calls c WHERE c.turn_id = :turn ORDER BY c.ordinal

-- name: ledger
-- All calls of a root turn and of the turns that continued it.
SELECT {{call_columns}} FROM calls c WHERE c.root_id = :root ORDER BY c.ordinal

-- name: return_call
-- No row changed: the turn made no such call, or the call has a result already.
UPDATE calls SET effect = 'returned', ended_at = :now WHERE turn_id = :turn AND call_id = :call AND effect = 'called'

-- name: set_approval
UPDATE calls SET approval = :approval, started_at = :started_at WHERE turn_id = :turn AND call_id = :call

-- name: allow_run_again
-- Allows one more run of a call that may have run.
UPDATE calls SET run_again = 'approved'
WHERE turn_id = :turn AND call_id = :call AND effect = 'unknown' AND run_again = 'none'

-- name: use_run_again
-- The call was made once more, under its own key. The effect of this entry stays unknown.
UPDATE calls SET run_again = 'used'
WHERE root_id = :root AND ordinal = :ordinal AND effect = 'unknown' AND run_again = 'approved'

-- name: last_of_root
-- The newest turn of this root turn, and its outcome. No row: the root has no turn.
SELECT t.id AS turn, t.outcome FROM turns t WHERE t.session_id = :session AND t.root_id = :root ORDER BY t.event DESC LIMIT 1

-- name: give_up_calls
-- Marks calls without a result as unknown, because they may have run, and returns their ids.
-- A call that waited for a person has certainly not run, and can still be decided.
UPDATE calls SET effect = 'unknown'
WHERE turn_id = :turn AND effect = 'called' AND approval IN ('none', 'approved') RETURNING ordinal, call_id AS call

-- name: worker
SELECT id, host, pid, boot_id, started_at FROM workers WHERE id = :worker

-- name: workers
SELECT id, host, pid, boot_id, started_at FROM workers ORDER BY id

-- name: add_worker
INSERT INTO workers (id, host, pid, boot_id, started_at) VALUES (:worker, :host, :pid, :boot_id, :now)
ON CONFLICT (id) DO NOTHING

-- name: drop_worker
DELETE FROM workers WHERE id = :worker
