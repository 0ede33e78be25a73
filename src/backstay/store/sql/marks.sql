-- name: marks
-- No row: this owner left none in this session.
SELECT draft, read_to FROM marks WHERE session_id = :session AND owner = :owner

-- name: badge
-- Whether a call of the running turn needs approval, or of the last one if it was interrupted; and how the last turn ended.
-- No row: no such session of this owner.
SELECT
    EXISTS (
        SELECT 1 FROM calls c
        WHERE c.turn_id = coalesce(s.running_id, CASE WHEN l.outcome = 'interrupted' THEN l.id END)
            AND c.approval = 'asked' AND c.effect = 'called'
    ) AS asks,
    l.outcome
FROM sessions s LEFT JOIN turns l ON l.id = (
    SELECT t.id FROM turns t
    WHERE t.session_id = s.id AND t.state = 'ended' AND t.taken_by IS NULL ORDER BY t.ended_at DESC, t.event DESC LIMIT 1
)
WHERE s.id = :session AND s.owner = :owner AND s.state <> 'deleted'

-- name: set_draft
INSERT INTO marks (session_id, owner, draft, at) VALUES (:session, :owner, :draft, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET draft = excluded.draft, at = excluded.at

-- name: set_read
-- A read mark only moves forward.
INSERT INTO marks (session_id, owner, read_to, at) VALUES (:session, :owner, :read_to, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET read_to = max(marks.read_to, excluded.read_to), at = excluded.at
