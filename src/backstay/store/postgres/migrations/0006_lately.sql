-- When each writer marked last, on the server's clock: a mark that nobody can ask for any more is forgotten.
ALTER TABLE commits ADD COLUMN at BIGINT NOT NULL DEFAULT 0;
