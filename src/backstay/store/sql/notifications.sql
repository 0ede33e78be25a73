-- name: is_notable
-- Notifications for other programs: ends of turns, calls that wait for a person, and changes of the session. The body
-- of a call contains its arguments, so some of the found ones need no approval.
(e.kind IN (
    'turn_ended', 'turn_recorded', 'turn_folded', 'session_created', 'session_renamed', 'session_pinned',
    'session_archived', 'session_tagged', 'session_annotated', 'session_ended', 'session_expired', 'session_deleted'
) OR (e.kind = 'tool_called' AND e.body LIKE '%"approval"_true%'))

-- name: notable_after
-- The notable events of all sessions of an owner, in the order they were written.
SELECT e.key AS position, e.session_id AS session, e.number, e.last, e.kind, e.at FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND e.key <= :until AND s.id = e.session_id AND s.owner = :owner AND {{is_notable}}
ORDER BY e.key LIMIT :limit

-- name: next_notable
-- The notable events of a session after an event, which may be inside a fold.
SELECT e.kind, {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.last > :number AND e.number >= coalesce(
    (SELECT max(f.number) FROM events f WHERE f.session_id = :session AND f.number <= :number), 0
) AND {{is_notable}} ORDER BY e.number LIMIT :limit

-- name: notable_at
-- The event or fold that ends with this number.
SELECT e.kind, {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.number <= :number AND e.last >= :number AND {{is_notable}}
ORDER BY e.number DESC LIMIT 1

-- name: retried_receipts
-- What was given up and is to be sent again, and what of this was being sent when the sender stopped.
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event <= :cursor
AND r.state IN ('waiting', 'unknown') ORDER BY r.event, r.part LIMIT 1

-- name: drop_finished_receipts
DELETE FROM receipts WHERE delivery_id = :delivery AND event = :event AND state <> 'failed'

-- name: failed_receipts
-- The notifications that a gateway gave up, newest first.
SELECT d.gateway, d.session_id AS session, r.event, r.part, r.attempts, r.reason, r.at
FROM receipts r CROSS JOIN deliveries d
WHERE r.state = 'failed' AND d.id = r.delivery_id AND d.owner = :owner AND d.gateway = :gateway
ORDER BY r.at DESC, r.delivery_id, r.event LIMIT :limit

-- name: backlog
SELECT (SELECT count(*) FROM deliveries d WHERE d.owner = :owner AND d.gateway = :gateway AND d.due = 1) AS waiting, (
    SELECT count(*) FROM receipts r CROSS JOIN deliveries d
    WHERE r.state = 'failed' AND d.id = r.delivery_id AND d.owner = :owner AND d.gateway = :gateway
) AS failed

-- name: retry_receipts
-- Send these again: as if they were begun now. Null: all parts of all events.
UPDATE receipts SET state = 'waiting', at = :now, reason = ''
WHERE state = 'failed' AND (event = :event OR :event IS NULL) AND delivery_id IN (
    SELECT d.id FROM deliveries d WHERE d.owner = :owner AND d.gateway = :gateway
    AND (d.session_id = :session OR :session IS NULL)
)

-- name: mark_retried
UPDATE deliveries SET due = 1 WHERE owner = :owner AND gateway = :gateway AND due = 0 AND id IN (
    SELECT r.delivery_id FROM receipts r WHERE r.state = 'waiting'
)

-- name: drop_old_failures
-- Keeps the newest ones of a gateway.
DELETE FROM receipts WHERE state = 'failed' AND delivery_id = :delivery AND event = :event AND part = :part

-- name: failures_to_drop
SELECT r.delivery_id AS delivery, r.event, r.part FROM receipts r CROSS JOIN deliveries d
WHERE r.state = 'failed' AND d.id = r.delivery_id AND d.owner = :owner AND d.gateway = :gateway
ORDER BY r.at DESC, r.delivery_id, r.event LIMIT 100 OFFSET :kept
