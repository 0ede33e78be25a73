-- Why a turn failed, for programs (code), and what to do next (hint). Empty for other outcomes, and for failures that an
-- earlier version stored.
ALTER TABLE turns ADD COLUMN code TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN hint TEXT NOT NULL DEFAULT '';
