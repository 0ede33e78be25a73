-- Sessions that are being imported: their rows are invisible until the last step of the import.
-- `import_id` names one attempt to import a document; the session and those it was forked from have a row each. After
-- `until` the import counts as abandoned, unless it has continued. `feed_end` is the end of the feed when the import
-- began to write events: the owner's feed waits there until the import ends.
CREATE TABLE imports (
    session_id  TEXT    NOT NULL PRIMARY KEY REFERENCES sessions (id),
    import_id   TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    until       INTEGER NOT NULL,
    feed_end    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX imports_together ON imports (import_id);
