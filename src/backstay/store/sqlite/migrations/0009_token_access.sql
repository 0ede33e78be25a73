-- The access of a token. Older tokens have full access.
ALTER TABLE tokens ADD COLUMN access TEXT NOT NULL DEFAULT 'full' CHECK (access IN ('full', 'read'));
