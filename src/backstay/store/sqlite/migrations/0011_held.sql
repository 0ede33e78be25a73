-- An imported turn is held: no worker starts or resumes it until a person releases it. `sessions.held` counts how many
-- of the waiting turns of a session are held.
ALTER TABLE turns ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
ALTER TABLE sessions ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0);

-- Workers look for turns to claim all the time: held turns must not cost them anything.
DROP INDEX turns_to_claim;
CREATE INDEX turns_to_claim ON turns (agent, id) WHERE state = 'waiting' AND taken_by IS NULL AND held = 0;
