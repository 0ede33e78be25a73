-- name: turn_columns
t.id, t.session_id, t.root_id, t.agent, t.state, t.outcome, t.reason, t.steer, t.taken_by, t.cancel_requested, t.format,
t.input, t.request_id, t.usage, t.created_at, t.started_at, t.ended_at, t.event, t.first_event, t.forgotten

-- name: turn
-- No row: no such turn of this owner.
SELECT {{turn_columns}} FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.id = :turn AND s.owner = :owner AND s.state <> 'deleted'

-- name: turn_of_request
-- The turn that this request became. No row: it was never accepted.
SELECT t.request_hash, {{turn_columns}} FROM turns t WHERE t.request_key = :request_key

-- name: add_turn
INSERT INTO turns (
    id, session_id, root_id, agent, state, outcome, steer, place, event, first_event, format, input,
    request_key, request_id, request_hash, created_at, started_at, ended_at
) VALUES (
    :turn, :session, :root, :agent, :state, :outcome, :steer, :place, :event, :first_event, :format, :input,
    :request_key, :request_id, :request_hash, :now, :started_at, :ended_at
)

-- name: start_turn
-- A waiting turn runs; its input has become a message.
UPDATE turns SET state = 'running', input = NULL, started_at = :now, first_event = :first_event WHERE id = :turn

-- name: end_turn
UPDATE turns SET state = 'ended', outcome = :outcome, reason = :reason, input = NULL, usage = :usage, ended_at = :now
WHERE id = :turn

-- name: forget_turn
UPDATE turns SET forgotten = 1 WHERE id = :turn

-- name: ask_to_cancel
UPDATE turns SET cancel_requested = 1 WHERE id = :turn

-- name: edit_turn
UPDATE turns SET input = :input, format = :format WHERE id = :turn

-- name: next_waiting
-- The waiting turn whose time has come. No row: nobody waits.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL ORDER BY t.place LIMIT 1

-- name: waiting_turns
-- What waits in a session, in the order it will run.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL ORDER BY t.place

-- name: waiting_places
SELECT t.id, t.place FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL ORDER BY t.place

-- name: move_turn
UPDATE turns SET place = :place WHERE id = :turn

-- name: steering_turns
-- Waiting inputs that are meant for the running turn.
SELECT {{turn_columns}} FROM turns t
WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by IS NULL AND t.steer = 1 ORDER BY t.place

-- name: take_steering
UPDATE turns SET taken_by = :taken_by, started_at = :now WHERE id = :turn

-- name: taken_turns
-- Steering inputs that this turn took.
SELECT {{turn_columns}} FROM turns t WHERE t.session_id = :session AND t.state = 'waiting' AND t.taken_by = :turn

-- name: claimable
-- The oldest waiting turn for this agent in a session where nobody speaks. No row: nothing to do.
SELECT t.id, t.session_id, s.owner FROM turns t JOIN sessions s ON s.id = t.session_id
WHERE t.agent = :agent AND t.state = 'waiting' AND t.taken_by IS NULL AND s.running_id IS NULL
    AND (s.owner = :owner OR :owner IS NULL)
    AND NOT EXISTS (
        SELECT 1 FROM turns e WHERE e.session_id = t.session_id AND e.state = 'waiting' AND e.taken_by IS NULL
            AND e.place < t.place
    )
ORDER BY t.id LIMIT 1

-- name: load
-- Both are counted from indexes that hold nothing else.
SELECT
    (SELECT count(*) FROM sessions WHERE running_id IS NOT NULL),
    (SELECT count(*) FROM turns WHERE state = 'waiting' AND taken_by IS NULL)

-- name: add_call
-- A call that asks does not begin by being made.
INSERT INTO calls (root_id, ordinal, turn_id, call_id, name, arguments_hash, approval, effect, started_at)
VALUES (:root, :ordinal, :turn, :call, :name, :arguments_hash, :approval, 'called', :started_at)

-- name: repeat_call
-- The same call again, by a turn that goes on for the one that was interrupted in it.
-- What a person decided about these arguments still holds.
UPDATE calls SET turn_id = :turn, call_id = :call, effect = 'called', started_at = :started_at, ended_at = NULL
WHERE root_id = :root AND ordinal = :ordinal

-- name: interrupted_turns
-- Turns that were interrupted lately, as the last thing that happened in a session where nobody speaks or waits.
SELECT t.id, s.owner FROM turns t CROSS JOIN sessions s
WHERE t.outcome = 'interrupted' AND t.ended_at >= :moment AND t.agent = :agent AND s.id = t.session_id
    AND t.taken_by IS NULL AND s.state = 'open' AND s.running_id IS NULL AND s.waiting = 0
    AND NOT EXISTS (
        SELECT 1 FROM turns l WHERE l.session_id = t.session_id AND l.event > t.event
            AND (l.taken_by IS NULL OR l.taken_by <> t.id)
    )
    AND (SELECT count(*) FROM turns r WHERE r.session_id = t.session_id AND r.root_id = t.root_id) <= :most
ORDER BY t.ended_at LIMIT :limit

-- name: line_of_ledger
-- No row: the root turn has no such call.
SELECT {{call_columns}} FROM calls c WHERE c.root_id = :root AND c.ordinal = :ordinal

-- name: count_calls
SELECT count(*) FROM calls WHERE root_id = :root

-- name: call_columns
c.turn_id, c.root_id, c.ordinal, c.call_id, c.name, c.arguments_hash, c.approval, c.effect, c.started_at,
c.ended_at

-- name: call
-- No row: the turn made no such call.
SELECT {{call_columns}} FROM calls c WHERE c.turn_id = :turn AND c.call_id = :call

-- name: calls
SELECT {{call_columns}} FROM calls c WHERE c.turn_id = :turn ORDER BY c.ordinal

-- name: ledger
-- All calls of a root turn and of those that went on for it.
SELECT {{call_columns}} FROM calls c WHERE c.root_id = :root ORDER BY c.ordinal

-- name: return_call
UPDATE calls SET effect = 'returned', ended_at = :now WHERE turn_id = :turn AND call_id = :call

-- name: set_approval
UPDATE calls SET approval = :approval, started_at = :started_at WHERE turn_id = :turn AND call_id = :call

-- name: give_up_calls
-- Calls without a result may have run: from now on nobody knows. Returns their ids.
-- A call that only waited for a person has certainly not run, and can still be decided.
UPDATE calls SET effect = 'unknown'
WHERE turn_id = :turn AND effect = 'called' AND approval IN ('none', 'approved') RETURNING ordinal, call_id

-- name: worker
SELECT id, host, pid, boot_id, started_at FROM workers WHERE id = :worker

-- name: workers
SELECT id, host, pid, boot_id, started_at FROM workers ORDER BY id

-- name: add_worker
INSERT INTO workers (id, host, pid, boot_id, started_at) VALUES (:worker, :host, :pid, :boot_id, :now)
ON CONFLICT (id) DO NOTHING

-- name: drop_worker
DELETE FROM workers WHERE id = :worker
