-- Notes: what programs attach to sessions, and which turns they no longer want to be asked about.

-- A JSON object of texts. The store keeps it and looks at nothing in it.
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';

-- A turn that is forgotten is not shown by its own name any more; what was said in it stays said.
ALTER TABLE turns ADD COLUMN forgotten BIGINT NOT NULL DEFAULT 0;
