-- When a tool started and when its result arrived. A call that needs approval starts when it is approved. Calls from
-- before this migration have neither.
ALTER TABLE calls ADD COLUMN started_at BIGINT;
ALTER TABLE calls ADD COLUMN ended_at BIGINT;
