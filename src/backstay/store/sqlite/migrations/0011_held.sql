-- An imported turn is held: no worker starts it, or resumes it, until a person releases it. A session counts the held
-- ones among its waiting turns.
ALTER TABLE turns ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
ALTER TABLE sessions ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0);

-- Workers look for turns to claim again and again: held ones must cost them nothing.
DROP INDEX turns_to_claim;
CREATE INDEX turns_to_claim ON turns (agent, id) WHERE state = 'waiting' AND taken_by IS NULL AND held = 0;
