-- A request id identifies one request of its owner. Before this migration it was unique per address and per session. If
-- one id named several turns of an owner, requests find the first, and the others only display it.
ALTER TABLE turns ADD COLUMN request_owner TEXT;

UPDATE turns SET request_owner = (SELECT s.owner FROM sessions s WHERE s.id = turns.session_id)
WHERE id IN (
    SELECT counted.id FROM (
        SELECT t.id, row_number() OVER (PARTITION BY s.owner, t.request_id ORDER BY t.created_at, t.id) AS place
        FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.request_id IS NOT NULL
    ) AS counted WHERE counted.place = 1
);

DROP INDEX turns_by_request;
CREATE UNIQUE INDEX turns_by_request ON turns (request_owner, request_id) WHERE request_owner IS NOT NULL;
