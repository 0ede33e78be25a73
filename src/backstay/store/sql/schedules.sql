-- name: schedule_columns
s.id, s.owner, s.timing, s.target, s.agent, s.message, s.if_busy, s.if_missed, s.state, s.revision, s.next_due, s.asked_due,
s.request_hash, s.created_at

-- name: entry_columns
l.number, l.at, l.step, l.due, l.missed, l.session_id AS session, l.turn_id AS turn, l.reason

-- name: add_schedule
INSERT INTO schedules (
    id, owner, timing, target, agent, message, if_busy, if_missed, state, revision, next_due, request_id, request_hash,
    created_at
) VALUES (
    :schedule, :owner, :timing, :target, :agent, :message, :if_busy, :if_missed, 'active', 1, :next_due, :request_id,
    :request_hash, :now
)

-- name: schedule
-- No row: no such schedule of this owner.
SELECT {{schedule_columns}} FROM schedules s WHERE s.id = :schedule AND s.owner = :owner

-- name: schedule_of_request
SELECT {{schedule_columns}} FROM schedules s WHERE s.owner = :owner AND s.request_id = :request_id

-- name: schedules_of
SELECT {{schedule_columns}} FROM schedules s WHERE s.owner = :owner ORDER BY s.id

-- name: unfinished_schedules
SELECT count(*) FROM schedules WHERE owner = :owner AND state <> 'ended'

-- name: old_schedules
-- The ended schedules of an owner beyond the newest ones.
SELECT id FROM schedules WHERE owner = :owner AND state = 'ended' ORDER BY id DESC LIMIT 1000 OFFSET :kept

-- name: due_schedules
SELECT s.id, s.owner, s.next_due AS due FROM schedules s
WHERE s.state = 'active' AND s.next_due <= :now ORDER BY s.next_due, s.id LIMIT :limit

-- name: next_due
SELECT min(next_due) FROM schedules WHERE state = 'active' AND next_due > :now

-- name: write_schedule
-- No row changed: another transaction changed the schedule since it was read.
UPDATE schedules SET state = :state, revision = :revision, next_due = :next_due, asked_due = :asked_due
WHERE id = :schedule AND revision = :found

-- name: delete_schedule
-- No row changed: another transaction changed the schedule since it was read.
DELETE FROM schedules WHERE id = :schedule AND revision = :found

-- name: add_schedule_entry
INSERT INTO schedule_log (schedule_id, number, at, step, due, missed, session_id, turn_id, reason)
VALUES (:schedule, :number, :now, :step, :due, :missed, :session, :turn, :reason)

-- name: drop_schedule_entries
DELETE FROM schedule_log WHERE schedule_id = :schedule AND number <= :until

-- name: schedule_log
SELECT {{entry_columns}} FROM schedule_log l WHERE l.schedule_id = :schedule ORDER BY l.number DESC LIMIT :limit

-- name: newest_entries
-- The newest entry of each schedule of an owner.
SELECT l.schedule_id AS schedule, {{entry_columns}} FROM schedules s
JOIN schedule_log l ON l.schedule_id = s.id AND l.number = s.revision WHERE s.owner = :owner

-- name: schedules_without_their_entry
SELECT s.id FROM schedules s
WHERE NOT EXISTS (SELECT 1 FROM schedule_log l WHERE l.schedule_id = s.id AND l.number = s.revision)

-- name: entries_without_a_schedule
SELECT l.schedule_id FROM schedule_log l WHERE l.schedule_id NOT IN (SELECT id FROM schedules)
