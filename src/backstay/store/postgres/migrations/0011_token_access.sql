-- What a token may do. Tokens from before may do everything.
ALTER TABLE tokens ADD COLUMN access TEXT NOT NULL DEFAULT 'full' CHECK (access IN ('full', 'read'));
