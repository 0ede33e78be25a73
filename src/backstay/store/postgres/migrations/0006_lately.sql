-- The time of each writer's last mark, on the server's clock: marks that are no longer needed are deleted.
ALTER TABLE commits ADD COLUMN at BIGINT NOT NULL DEFAULT 0;
