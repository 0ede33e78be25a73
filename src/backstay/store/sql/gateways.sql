-- name: gateway_columns
g.owner, g.name, g.cursor, g.feed, g.received_at, g.fence, g.holder, g.lease_until, g.lease_boot, g.lease_ms, g.created_at,
g.answered_at, g.problem, g.pairing_until

-- name: gateway_row
-- Every write for a gateway locks its row first. No row: this owner has no such gateway.
SELECT {{gateway_columns}} FROM gateways g WHERE g.owner = :owner AND g.name = :name

-- name: gateways_of
SELECT {{gateway_columns}} FROM gateways g WHERE g.owner = :owner ORDER BY g.name

-- name: add_gateway
-- Two processes may add it at once: the first one does.
INSERT INTO gateways (owner, name, cursor, feed, fence, created_at) VALUES (:owner, :name, '', 0, 0, :now)
ON CONFLICT (owner, name) DO NOTHING

-- name: write_gateway
UPDATE gateways SET
    cursor = :cursor, feed = :feed, received_at = :received_at, fence = :fence, holder = :holder,
    lease_until = :lease_until, lease_boot = :lease_boot, lease_ms = :lease_ms, answered_at = :answered_at,
    problem = :problem, pairing_until = :pairing_until
WHERE owner = :owner AND name = :name AND fence = :found_fence

-- name: arrival
-- No row: this message was never received.
SELECT a.id, a.turn_id AS turn, a.gathering, a.place, a.parts, a.files FROM arrivals a
WHERE a.owner = :owner AND a.gateway = :gateway AND a.id = :id

-- name: add_arrival
INSERT INTO arrivals (owner, gateway, id, turn_id, gathering, place, parts, files, at, sender)
VALUES (:owner, :gateway, :id, :turn, :gathering, :place, :parts, :files, :now, :sender)

-- name: arrivals_of_gathering
-- The messages of an open gathering, in the order of its parts.
SELECT a.id, a.turn_id AS turn, a.gathering, a.place, a.parts, a.files FROM arrivals a
WHERE a.owner = :owner AND a.gateway = :gateway AND a.gathering = :gathering ORDER BY a.place, a.id

-- name: gathered
-- The messages of all open gatherings of a gateway.
SELECT a.id, a.turn_id AS turn, a.gathering, a.place, a.parts, a.files FROM arrivals a
WHERE a.owner = :owner AND a.gateway = :gateway AND a.gathering IS NOT NULL ORDER BY a.gathering, a.place, a.id

-- name: set_arrival_parts
-- The files of the message are fetched: its parts are others.
UPDATE arrivals SET parts = :parts, files = NULL WHERE owner = :owner AND gateway = :gateway AND id = :id

-- name: close_gathering
UPDATE arrivals SET gathering = NULL, files = NULL
WHERE owner = :owner AND gateway = :gateway AND gathering = :gathering

-- name: delivery_columns
d.id, d.owner, d.gateway, d.destination, d.session_id AS session, d.cursor, d.due, d.closing, d.stopped, d.preview

-- name: delivery
-- No row: the gateway has no such delivery.
SELECT {{delivery_columns}} FROM deliveries d WHERE d.id = :delivery AND d.owner = :owner AND d.gateway = :gateway

-- name: delivery_to
-- No row: the answers of the session are not sent there.
SELECT {{delivery_columns}} FROM deliveries d
WHERE d.owner = :owner AND d.gateway = :gateway AND d.destination = :destination AND d.session_id = :session

-- name: due_deliveries
SELECT {{delivery_columns}} FROM deliveries d
WHERE d.owner = :owner AND d.gateway = :gateway AND d.due = 1 AND d.id > :after ORDER BY d.id LIMIT :limit

-- name: deliveries_to
-- Everything that is sent to a destination.
SELECT {{delivery_columns}} FROM deliveries d
WHERE d.owner = :owner AND d.gateway = :gateway AND d.destination = :destination ORDER BY d.id

-- name: deliveries_with_preview
SELECT {{delivery_columns}} FROM deliveries d
WHERE d.owner = :owner AND d.gateway = :gateway AND d.preview IS NOT NULL ORDER BY d.id

-- name: running_deliveries
-- Deliveries of sessions in which a turn runs now.
SELECT {{delivery_columns}} FROM sessions s JOIN deliveries d ON d.session_id = s.id
WHERE s.running_id IS NOT NULL AND d.owner = :owner AND d.gateway = :gateway ORDER BY d.id

-- name: deliveries_of_session
SELECT {{delivery_columns}} FROM deliveries d WHERE d.session_id = :session AND d.owner = :owner ORDER BY d.id

-- name: add_delivery
INSERT INTO deliveries (id, owner, gateway, destination, session_id, cursor)
VALUES (:delivery, :owner, :gateway, :destination, :session, :cursor)

-- name: mark_due
UPDATE deliveries SET due = 1
WHERE session_id = :session AND owner = :owner AND gateway = :gateway AND due = 0 AND stopped IS NULL
    AND cursor < :number

-- name: set_delivery_cursor
UPDATE deliveries SET cursor = :cursor, due = :due WHERE id = :delivery AND cursor = :found_cursor

-- name: set_delivery_closing
UPDATE deliveries SET closing = :closing, due = :due WHERE id = :delivery

-- name: stop_delivery
UPDATE deliveries SET stopped = :reason, due = 0 WHERE id = :delivery

-- name: restart_delivery
-- What ended while it was stopped has failed.
UPDATE deliveries SET stopped = NULL, due = 0, cursor = :cursor WHERE id = :delivery AND cursor = :found_cursor

-- name: move_delivery
UPDATE deliveries SET destination = :destination WHERE id = :delivery

-- name: forget_preview
UPDATE deliveries SET preview = NULL WHERE id = :delivery AND preview = :preview

-- name: set_preview
UPDATE deliveries SET preview = :preview WHERE id = :delivery

-- name: drop_delivery
DELETE FROM deliveries WHERE id = :delivery

-- name: drop_receipts
DELETE FROM receipts WHERE delivery_id = :delivery

-- name: ending_kinds
('turn_ended', 'turn_recorded', 'turn_folded')

-- name: endings_after
-- The starts and ends of turns in all sessions of an owner, in the order they were written.
SELECT e.key AS position, e.session_id AS session, e.last AS number, e.kind FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND e.key <= :until AND s.id = e.session_id AND s.owner = :owner AND e.kind IN ('turn_started', 'turn_ended', 'turn_recorded', 'turn_folded')
ORDER BY e.key LIMIT :limit

-- name: next_ending
-- The first end of a turn after an event, which may be inside a fold. No row: no turn has ended since.
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.last > :number AND e.number >= coalesce(
    (SELECT max(f.number) FROM events f WHERE f.session_id = :session AND f.number <= :number), 0
) AND e.kind IN {{ending_kinds}} ORDER BY e.number LIMIT 1

-- name: continued_turn
-- The turn that this one continues. No row: its input is its own.
SELECT {{turn_columns}} FROM turns t
WHERE (t.id = :root OR t.root_id = :root) AND t.id <> :turn AND t.event < :event ORDER BY t.event DESC LIMIT 1

-- name: receipt_columns
r.delivery_id AS delivery, r.event, r.part, r.low, r.high, r.state, r.attempts, r.repeated, r.platform_id, r.reason, r.at

-- name: receipts
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event = :event ORDER BY r.part

-- name: receipt
-- No row: this part was never begun.
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event = :event AND r.part = :part

-- name: receipts_before
-- The receipts of the last event before this one.
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event = (
    SELECT max(b.event) FROM receipts b WHERE b.delivery_id = :delivery AND b.event < :event
) ORDER BY r.part

-- name: add_receipt
INSERT INTO receipts (delivery_id, event, part, low, high, state, attempts, at)
VALUES (:delivery, :event, :part, :low, :high, 'sending', 1, :now)

-- name: set_receipt
UPDATE receipts SET state = :state, attempts = :attempts, repeated = :repeated, platform_id = :platform_id, reason = :reason
WHERE delivery_id = :delivery AND event = :event AND part = :part

-- name: doubt_receipts
-- The last poller began to send these parts. It is not known whether they arrived.
UPDATE receipts SET state = 'unknown', reason = 'the gateway stopped while it sent this'
WHERE state = 'sending' AND delivery_id IN (SELECT d.id FROM deliveries d WHERE d.owner = :owner AND d.gateway = :gateway)

-- name: gateway_people
-- People who were let in, and those with a code, by id.
SELECT p.person, p.name, p.code, p.code_until, p.paired_at FROM gateway_people p
WHERE p.owner = :owner AND p.gateway = :gateway ORDER BY p.person

-- name: write_gateway_person
INSERT INTO gateway_people (owner, gateway, person, name, code, code_until, paired_at)
VALUES (:owner, :gateway, :person, :name, :code, :code_until, :paired_at)
ON CONFLICT (owner, gateway, person) DO UPDATE SET
    name = excluded.name, code = excluded.code, code_until = excluded.code_until, paired_at = excluded.paired_at

-- name: delete_gateway_person
DELETE FROM gateway_people WHERE owner = :owner AND gateway = :gateway AND person = :person

-- name: delete_old_codes
DELETE FROM gateway_people
WHERE owner = :owner AND gateway = :gateway AND code_until IS NOT NULL AND code_until <= :now

-- name: sender_of_arrival
-- No row: this message was never received.
SELECT a.sender FROM arrivals a WHERE a.owner = :owner AND a.gateway = :gateway AND a.id = :id

-- name: knows_arrival
-- No row: this message was never received.
SELECT 1 FROM arrivals a WHERE a.owner = :owner AND a.gateway = :gateway AND a.id = :id

-- name: place_of_call
-- No row: the call is gone.
SELECT c.turn_id AS turn, c.call_id AS call FROM calls c WHERE c.root_id = :root AND c.ordinal = :ordinal

-- name: chat_settings
-- No row: the chat has the settings of the gateway.
SELECT c.agent, c.if_busy FROM chats c
WHERE c.owner = :owner AND c.gateway = :gateway AND c.destination = :destination

-- name: set_chat
INSERT INTO chats (owner, gateway, destination, agent, if_busy)
VALUES (:owner, :gateway, :destination, :agent, :if_busy)
ON CONFLICT (owner, gateway, destination) DO UPDATE SET agent = excluded.agent, if_busy = excluded.if_busy

-- name: move_notices
-- A notice of this name may be there already.
UPDATE notices SET destination = :new
WHERE owner = :owner AND gateway = :gateway AND destination = :old AND NOT EXISTS (
    SELECT 1 FROM notices o
    WHERE o.owner = :owner AND o.gateway = :gateway AND o.destination = :new AND o.name = notices.name
)

-- name: move_chat
-- The chat may have settings under its new name already.
UPDATE chats SET destination = :new
WHERE owner = :owner AND gateway = :gateway AND destination = :old AND NOT EXISTS (
    SELECT 1 FROM chats o WHERE o.owner = :owner AND o.gateway = :gateway AND o.destination = :new
)

-- name: notice_columns
n.id, n.name, n.destination, n.kind, n.person, n.turn_id AS turn, n.root_id AS root, n.ordinal, n.arguments_hash, n.phase,
n.content, n.version, n.shown, n.state, n.repeated, n.platform_id, n.final, n.at

-- name: notice
-- No row: the gateway has no such notice.
SELECT {{notice_columns}} FROM notices n WHERE n.id = :notice AND n.owner = :owner AND n.gateway = :gateway

-- name: notice_named
-- No row: no notice has this name there.
SELECT {{notice_columns}} FROM notices n
WHERE n.owner = :owner AND n.gateway = :gateway AND n.name = :name AND n.destination = :destination

-- name: add_notice
INSERT INTO notices (
    id, owner, gateway, name, destination, kind, person, turn_id, root_id, ordinal, arguments_hash, phase, content,
    version, state, final, at
) VALUES (
    :notice, :owner, :gateway, :name, :destination, :kind, :person, :turn, :root, :ordinal, :arguments_hash, :phase,
    :content, 1, 'waiting', :final, :now
)

-- name: write_notice
UPDATE notices SET
    phase = :phase, content = :content, version = :version, shown = :shown, state = :state, repeated = :repeated,
    platform_id = :platform_id, final = :final
WHERE id = :notice AND version = :found_version

-- name: drop_notice
DELETE FROM notices WHERE id = :notice

-- name: drop_buttons
DELETE FROM buttons WHERE notice_id = :notice

-- name: add_button
INSERT INTO buttons (id, notice_id, action) VALUES (:id, :notice, :action)

-- name: button
-- No row: there never was such a button, or its notice is gone.
-- One press of one button of a notice is used.
SELECT b.id, b.notice_id AS notice, b.action,
    (SELECT u.used_in FROM buttons u WHERE u.notice_id = n.id AND u.used_in IS NOT NULL LIMIT 1) AS used_in,
    (SELECT u.used_by FROM buttons u WHERE u.notice_id = n.id AND u.used_in IS NOT NULL LIMIT 1) AS used_by
FROM buttons b JOIN notices n ON n.id = b.notice_id
WHERE b.id = :id AND n.owner = :owner AND n.gateway = :gateway

-- name: use_button
UPDATE buttons SET used_in = :used_in, used_by = :used_by, used_at = :now WHERE id = :id AND used_in IS NULL

-- name: doubt_notices
-- The last poller began to send these. It is not known whether they arrived.
UPDATE notices SET state = 'unknown' WHERE state = 'sending' AND owner = :owner AND gateway = :gateway

-- name: due_notices
SELECT {{notice_columns}} FROM notices n
WHERE n.owner = :owner AND n.gateway = :gateway AND n.id > :after AND n.shown < n.version AND n.state <> 'failed'
ORDER BY n.id LIMIT :limit

-- name: newest_notice_of
-- The newest list with buttons that a chat shows. No row: there is none.
SELECT {{notice_columns}} FROM notices n
WHERE n.owner = :owner AND n.gateway = :gateway AND n.destination = :destination AND n.kind = 'reply' AND n.final = 0
ORDER BY n.id DESC LIMIT 1

-- name: is_undecided
-- A call of the running turn, or of the last one if it was interrupted.
c.approval = 'asked' AND c.effect = 'called' AND s.state = 'open' AND c.turn_id = coalesce(
    s.running_id,
    (
        SELECT CASE WHEN l.outcome = 'interrupted' THEN l.id END FROM turns l
        WHERE l.session_id = s.id AND l.state = 'ended' AND l.taken_by IS NULL ORDER BY l.ended_at DESC, l.event DESC LIMIT 1
    )
)

-- name: watched_notices
-- Notices that may still change, beside what they are about.
SELECT {{notice_columns}}, t.state AS turn_state, t.taken_by, t.started_at, t.outcome, c.approval,
    CASE WHEN {{is_undecided}} THEN 1 ELSE 0 END AS undecided,
    (SELECT b.used_by FROM buttons b WHERE b.notice_id = n.id AND b.used_in IS NOT NULL LIMIT 1) AS used_by,
    CASE WHEN c.approval IN ('approved', 'denied') THEN (
        SELECT max(e.at) FROM events e
        WHERE e.session_id = m.session_id AND e.turn_id = c.turn_id AND e.kind = 'approval_decided'
    ) END AS decided_at
FROM notices n
LEFT JOIN turns t ON t.id = n.turn_id
LEFT JOIN calls c ON c.root_id = n.root_id AND c.ordinal = n.ordinal
LEFT JOIN turns m ON m.id = c.turn_id
LEFT JOIN sessions s ON s.id = m.session_id AND s.owner = n.owner
WHERE n.owner = :owner AND n.gateway = :gateway AND n.final = 0 AND n.kind <> 'reply' ORDER BY n.id

-- name: unasked_calls
-- Tool calls that wait for a decision, for each chat that shows their session and was not asked.
SELECT d.destination, s.id AS session, s.title, t.id AS turn, c.root_id AS root, c.ordinal, c.call_id AS call,
    c.arguments_hash, c.name AS tool, r.request_id
FROM calls c
JOIN turns t ON t.id = c.turn_id
JOIN turns r ON r.id = c.root_id
JOIN sessions s ON s.id = t.session_id
JOIN deliveries d ON d.session_id = s.id
WHERE {{is_undecided}} AND s.owner = :owner AND d.owner = :owner AND d.gateway = :gateway
    AND NOT EXISTS (
        SELECT 1 FROM notices n
        WHERE n.root_id = c.root_id AND n.ordinal = c.ordinal AND n.owner = d.owner AND n.gateway = d.gateway
            AND n.destination = d.destination
    )
ORDER BY t.id, c.ordinal, d.id LIMIT :limit

-- name: undecided_in
-- The tool calls of a session that wait for a decision.
SELECT c.turn_id AS turn, c.root_id AS root, c.ordinal, c.call_id AS call, c.arguments_hash, c.name AS tool, r.request_id
FROM calls c
JOIN turns t ON t.id = c.turn_id
JOIN turns r ON r.id = c.root_id
JOIN sessions s ON s.id = t.session_id
WHERE s.id = :session AND s.owner = :owner AND {{is_undecided}} ORDER BY c.ordinal
