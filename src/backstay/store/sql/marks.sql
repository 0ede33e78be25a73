-- name: marks
-- No row: this owner left none in this session.
SELECT draft, read_to, at FROM marks WHERE session_id = :session AND owner = :owner

-- name: set_draft
INSERT INTO marks (session_id, owner, draft, at) VALUES (:session, :owner, :draft, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET draft = excluded.draft, at = excluded.at

-- name: set_read
-- A read mark only moves forward.
INSERT INTO marks (session_id, owner, read_to, at) VALUES (:session, :owner, :read_to, :now)
ON CONFLICT (session_id, owner) DO UPDATE SET read_to = max(marks.read_to, excluded.read_to), at = excluded.at
