-- Schedules: messages that are sent at a moment, or again and again. `timing` is the spelling of the due times, with its
-- zone; `target` an address or a session's id. `revision` is the number of the newest entry in the log.
CREATE TABLE schedules (
    id            TEXT    NOT NULL PRIMARY KEY,
    owner         TEXT    NOT NULL,
    timing        TEXT    NOT NULL,
    target        TEXT    NOT NULL,
    agent         TEXT,
    message       TEXT    NOT NULL,
    if_busy       TEXT    NOT NULL CHECK (if_busy IN ('enqueue', 'reject', 'steer', 'replace', 'fork')),
    if_missed     TEXT    NOT NULL CHECK (if_missed IN ('late', 'skip', 'ask')),
    state         TEXT    NOT NULL CHECK (state IN ('active', 'paused', 'ended')),
    revision      INTEGER NOT NULL CHECK (revision >= 1),
    next_due      INTEGER,
    asked_due     INTEGER,
    request_id    TEXT,
    request_hash  BLOB,
    created_at    INTEGER NOT NULL,
    CHECK (state <> 'ended' OR (next_due IS NULL AND asked_due IS NULL)),
    CHECK (state = 'ended' OR next_due IS NOT NULL OR asked_due IS NOT NULL),
    CHECK ((request_id IS NULL) = (request_hash IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_of_owner ON schedules (owner, id);
CREATE INDEX schedules_due ON schedules (next_due, id) WHERE state = 'active';
CREATE UNIQUE INDEX schedules_requested ON schedules (owner, request_id) WHERE request_id IS NOT NULL;

-- What happened to a schedule. Old entries are removed.
CREATE TABLE schedule_log (
    schedule_id  TEXT    NOT NULL,
    number       INTEGER NOT NULL CHECK (number >= 1),
    at           INTEGER NOT NULL,
    step         TEXT    NOT NULL CHECK (
        step IN ('created', 'fired', 'missed', 'asked', 'failed', 'paused', 'resumed', 'skipped')
    ),
    due          INTEGER,
    missed       INTEGER NOT NULL CHECK (missed >= 0),
    session_id   TEXT,
    turn_id      TEXT,
    reason       TEXT,
    PRIMARY KEY (schedule_id, number)
) STRICT, WITHOUT ROWID;
