-- When a tool began to run and when its result came. A call that asks begins when a person allows it. Calls from before
-- this have neither.
ALTER TABLE calls ADD COLUMN started_at BIGINT;
ALTER TABLE calls ADD COLUMN ended_at BIGINT;
