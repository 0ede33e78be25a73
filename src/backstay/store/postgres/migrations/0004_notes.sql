-- Metadata that programs attach to sessions, and turns that are hidden.

-- A JSON object of texts. The store does not interpret it.
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';

-- A forgotten turn is no longer found by its id. Its messages stay.
ALTER TABLE turns ADD COLUMN forgotten BIGINT NOT NULL DEFAULT 0;
