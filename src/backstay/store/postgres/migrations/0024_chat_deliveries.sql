-- A chat that accepts nothing any more stops its deliveries; `stopped` is the reason. `preview` is the message that shows
-- an unfinished answer there: it is removed when the answer is sent, also by the next poller.

ALTER TABLE deliveries ADD COLUMN stopped TEXT;
ALTER TABLE deliveries ADD COLUMN preview TEXT;

CREATE INDEX deliveries_with_preview ON deliveries (owner, gateway, id) WHERE preview IS NOT NULL;
