-- The agent of a session's newest turn. Lists are filtered by agent and by place; the cost of a page does not depend on
-- the number of sessions.
ALTER TABLE sessions ADD COLUMN agent TEXT COLLATE "C";

UPDATE sessions SET agent = (
    SELECT t.agent FROM turns t
    WHERE t.session_id = sessions.id AND t.agent IS NOT NULL AND t.agent <> 'backstay.compactor'
    ORDER BY t.event DESC LIMIT 1
);

CREATE INDEX sessions_of_agent ON sessions (owner, agent, active_at DESC, id DESC)
WHERE state <> 'deleted' AND agent IS NOT NULL;
-- A place may be as long as a path, which is too long for an index; its hash is short.
CREATE INDEX sessions_of_place ON sessions (owner, md5(place), active_at DESC, id DESC)
WHERE state <> 'deleted' AND place IS NOT NULL;
