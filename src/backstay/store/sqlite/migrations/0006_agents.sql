-- Whose session it is: the agent of its newest turn. Lists are filtered by it, and by the place a session comes from; a
-- list costs the same however many sessions there are.
ALTER TABLE sessions ADD COLUMN agent TEXT;

UPDATE sessions SET agent = (
    SELECT t.agent FROM turns t
    WHERE t.session_id = sessions.id AND t.agent IS NOT NULL AND t.agent <> 'backstay.compactor'
    ORDER BY t.event DESC LIMIT 1
);

CREATE INDEX sessions_of_agent ON sessions (owner, agent, active_at DESC, id DESC)
WHERE state <> 'deleted' AND agent IS NOT NULL;
CREATE INDEX sessions_of_place ON sessions (owner, place, active_at DESC, id DESC)
WHERE state <> 'deleted' AND place IS NOT NULL;
