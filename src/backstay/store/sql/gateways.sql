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
INSERT INTO arrivals (owner, gateway, id, turn_id, gathering, place, parts, files, at)
VALUES (:owner, :gateway, :id, :turn, :gathering, :place, :parts, :files, :now)

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

-- name: set_preview
UPDATE deliveries SET preview = :preview WHERE id = :delivery

-- name: drop_delivery
DELETE FROM deliveries WHERE id = :delivery

-- name: drop_receipts
DELETE FROM receipts WHERE delivery_id = :delivery

-- name: ending_kinds
('turn_ended', 'turn_recorded', 'turn_folded')

-- name: endings_after
-- The ends of turns in all sessions of an owner, in the order they were written.
SELECT e.key AS position, e.session_id AS session, e.last AS number FROM events e CROSS JOIN sessions s
WHERE e.key > :position AND e.key <= :until AND s.id = e.session_id AND s.owner = :owner AND e.kind IN {{ending_kinds}}
ORDER BY e.key LIMIT :limit

-- name: next_ending
-- The first end of a turn after an event, which may be inside a fold. No row: no turn has ended since.
SELECT {{event_columns}} FROM events e
WHERE e.session_id = :session AND e.last > :number AND e.number >= coalesce(
    (SELECT max(f.number) FROM events f WHERE f.session_id = :session AND f.number <= :number), 0
) AND e.kind IN {{ending_kinds}} ORDER BY e.number LIMIT 1

-- name: receipt_columns
r.delivery_id AS delivery, r.event, r.part, r.low, r.high, r.state, r.attempts, r.repeated, r.platform_id, r.reason, r.at

-- name: receipts
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event = :event ORDER BY r.part

-- name: receipt
-- No row: this part was never begun.
SELECT {{receipt_columns}} FROM receipts r WHERE r.delivery_id = :delivery AND r.event = :event AND r.part = :part

-- name: add_receipt
INSERT INTO receipts (delivery_id, event, part, low, high, state, attempts, at)
VALUES (:delivery, :event, :part, :low, :high, 'sending', 1, :now)

-- name: set_receipt
UPDATE receipts SET state = :state, attempts = :attempts, repeated = :repeated, platform_id = :platform_id, reason = :reason
WHERE delivery_id = :delivery AND event = :event AND part = :part

-- name: doubt_receipts
-- The last poller began to send these parts. Nobody knows whether they arrived.
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
