-- Sessions that are being imported: their rows are invisible until the last step of the import.
-- `import_id` names one attempt to import a document; the session and those it was forked from have a row each. After
-- `until` the import counts as abandoned, unless it has continued. `feed_end` is the end of the feed when the import
-- began to write events: the owner's feed waits there until the import ends.
CREATE TABLE imports (
    session_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES sessions (id),
    import_id   TEXT COLLATE "C" NOT NULL,
    owner       TEXT COLLATE "C" NOT NULL,
    until       BIGINT           NOT NULL,
    feed_end    BIGINT
);

CREATE INDEX imports_together ON imports (import_id);
