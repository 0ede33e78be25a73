-- The base schema: sessions, windows, messages, turns, events, blobs, and the search index.
-- Times are milliseconds: `*_at` since 1970 (UTC), `lease_until` since the machine named by `lease_boot` started.

-- The session row: every write to a session locks this row first.
CREATE TABLE sessions (
    id              TEXT    NOT NULL PRIMARY KEY,
    owner           TEXT    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('open', 'ended', 'expired', 'deleted')),
    revision        INTEGER NOT NULL CHECK (revision >= 0),
    context         INTEGER NOT NULL CHECK (context >= 0),
    fence           INTEGER NOT NULL CHECK (fence >= 0),
    last_event      INTEGER NOT NULL CHECK (last_event >= 0),
    held_event      INTEGER NOT NULL,
    window_id       TEXT    NOT NULL,
    start           INTEGER NOT NULL,
    length          INTEGER NOT NULL CHECK (length >= 0),
    holder          TEXT,
    lease_until     INTEGER,
    lease_boot      TEXT,
    running_id      TEXT,
    cancelling      INTEGER NOT NULL DEFAULT 0,
    waiting         INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    steering        INTEGER NOT NULL DEFAULT 0 CHECK (steering >= 0),
    queued          INTEGER NOT NULL DEFAULT 0,
    turns           INTEGER NOT NULL DEFAULT 0,
    activity        INTEGER NOT NULL DEFAULT 0,
    touched_at      INTEGER NOT NULL,
    preview         TEXT,
    title           TEXT,
    title_by        TEXT    CHECK (title_by IN ('person', 'agent')),
    pinned          INTEGER NOT NULL DEFAULT 0,
    archived        INTEGER NOT NULL DEFAULT 0,
    tags            TEXT    NOT NULL DEFAULT '[]',
    family          TEXT,
    place           TEXT,
    source_id       TEXT,
    idle_ttl        INTEGER,
    expires_by      INTEGER,
    created_at      INTEGER NOT NULL,
    active_at       INTEGER NOT NULL,
    ended_at        INTEGER,
    CHECK ((running_id IS NULL) = (holder IS NULL)),
    CHECK ((holder IS NULL) = (lease_until IS NULL)),
    CHECK (state = 'open' OR (running_id IS NULL AND waiting = 0))
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_newest ON sessions (owner, active_at DESC, id DESC) WHERE state <> 'deleted';
CREATE INDEX sessions_mortal ON sessions (id) WHERE state = 'open' AND (idle_ttl IS NOT NULL OR expires_by IS NOT NULL);
CREATE INDEX sessions_closed ON sessions (ended_at) WHERE state IN ('ended', 'expired');
CREATE INDEX sessions_forked ON sessions (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX sessions_running ON sessions (id) WHERE running_id IS NOT NULL;

CREATE TABLE addresses (
    owner       TEXT    NOT NULL,
    key         BLOB    NOT NULL CHECK (length(key) = 32),
    spelling    TEXT    NOT NULL,
    session_id  TEXT    NOT NULL REFERENCES sessions (id),
    generation  INTEGER NOT NULL CHECK (generation >= 1),
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX addresses_of_session ON addresses (session_id);

-- A window: the first `base_until` messages of its base, if it has one, then the messages of its segments.
-- Its summary replaces the first `behind_until` messages of the window `behind`.
-- `event` is the number of the event that records its opening.
CREATE TABLE windows (
    id            TEXT    NOT NULL PRIMARY KEY,
    session_id    TEXT    NOT NULL REFERENCES sessions (id),
    parent_id     TEXT,
    reason        TEXT    NOT NULL CHECK (reason IN ('first', 'undo', 'retry', 'edit', 'fork', 'compaction')),
    start         INTEGER NOT NULL CHECK (start >= 0),
    base_id       TEXT    REFERENCES windows (id),
    base_until    INTEGER,
    behind_id     TEXT    REFERENCES windows (id),
    behind_until  INTEGER,
    event         INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    CHECK ((base_id IS NULL) = (base_until IS NULL)),
    CHECK ((behind_id IS NULL) = (behind_until IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX windows_of_session ON windows (session_id);
CREATE INDEX windows_based_on ON windows (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX windows_standing_for ON windows (behind_id) WHERE behind_id IS NOT NULL;
-- If two processes compact one window at once, the second finds the child of the first.
CREATE UNIQUE INDEX windows_compacted_once ON windows (parent_id) WHERE reason = 'compaction';

-- Messages `low` to `high` (not included) of `source_id` are in the window from position `start` on.
CREATE TABLE segments (
    window_id  TEXT    NOT NULL REFERENCES windows (id),
    start      INTEGER NOT NULL CHECK (start >= 0),
    source_id  TEXT    NOT NULL REFERENCES windows (id),
    low        INTEGER NOT NULL CHECK (low >= 0),
    high       INTEGER NOT NULL CHECK (high > low),
    PRIMARY KEY (window_id, start)
) STRICT, WITHOUT ROWID;

CREATE INDEX segments_of_source ON segments (source_id);

CREATE TABLE messages (
    key        INTEGER PRIMARY KEY,
    window_id  TEXT    NOT NULL REFERENCES windows (id),
    position   INTEGER NOT NULL CHECK (position >= 0),
    id         TEXT    NOT NULL UNIQUE,
    turn_id    TEXT,
    role       TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system', 'summary')),
    partial    INTEGER NOT NULL,
    format     INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    UNIQUE (window_id, position)
) STRICT;

CREATE TRIGGER messages_never_change BEFORE UPDATE ON messages
BEGIN SELECT RAISE(ABORT, 'a message never changes'); END;

-- `event` is the number of the event that records the acceptance of the turn; `first_event` that of its start, as long
-- as its deltas are not folded.
CREATE TABLE turns (
    id                TEXT    NOT NULL PRIMARY KEY,
    session_id        TEXT    NOT NULL REFERENCES sessions (id),
    root_id           TEXT    NOT NULL,
    agent             TEXT,
    state             TEXT    NOT NULL CHECK (state IN ('waiting', 'running', 'ended')),
    outcome           TEXT    CHECK (outcome IN ('completed', 'cancelled', 'failed', 'interrupted')),
    reason            TEXT    NOT NULL DEFAULT '',
    steer             INTEGER NOT NULL DEFAULT 0,
    taken_by          TEXT,
    cancel_requested  INTEGER NOT NULL DEFAULT 0,
    place             INTEGER NOT NULL DEFAULT 0,
    event             INTEGER NOT NULL,
    first_event       INTEGER,
    format            INTEGER NOT NULL,
    input             TEXT,
    request_key       BLOB,
    request_id        TEXT,
    request_hash      BLOB,
    usage             TEXT,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    ended_at          INTEGER,
    CHECK ((state = 'ended') = (outcome IS NOT NULL)),
    CHECK ((request_id IS NULL) = (request_key IS NULL)),
    CHECK (state <> 'waiting' OR input IS NOT NULL)
) STRICT;

CREATE INDEX turns_of_session ON turns (session_id);
CREATE UNIQUE INDEX turns_run_alone ON turns (session_id) WHERE state = 'running';
CREATE INDEX turns_waiting ON turns (session_id, place) WHERE state = 'waiting';
CREATE INDEX turns_to_claim ON turns (agent, id) WHERE state = 'waiting' AND taken_by IS NULL;
CREATE UNIQUE INDEX turns_by_request ON turns (request_key) WHERE request_key IS NOT NULL;

CREATE INDEX turns_interrupted ON turns (ended_at) WHERE outcome = 'interrupted';
CREATE INDEX turns_to_fold ON turns (ended_at) WHERE first_event IS NOT NULL AND state = 'ended';

CREATE TABLE calls (
    root_id         TEXT    NOT NULL,
    ordinal         INTEGER NOT NULL,
    turn_id         TEXT    NOT NULL REFERENCES turns (id),
    call_id         TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    arguments_hash  TEXT    NOT NULL,
    approval        TEXT    NOT NULL CHECK (approval IN ('none', 'asked', 'approved', 'denied')),
    effect          TEXT    NOT NULL CHECK (effect IN ('called', 'returned', 'unknown')),
    PRIMARY KEY (root_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX calls_of_turn ON calls (turn_id, call_id);

-- `last` is greater than `number` only where the deltas of an ended turn are folded into one row.
-- `source_id`, `low` and `high` are the range of the event's messages.
CREATE TABLE events (
    key         INTEGER PRIMARY KEY,
    session_id  TEXT    NOT NULL REFERENCES sessions (id),
    number      INTEGER NOT NULL CHECK (number >= 1),
    last        INTEGER NOT NULL CHECK (last >= number),
    fence       INTEGER NOT NULL,
    turn_id     TEXT,
    kind        TEXT    NOT NULL,
    format      INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    source_id   TEXT,
    low         INTEGER,
    high        INTEGER,
    at          INTEGER NOT NULL,
    UNIQUE (session_id, number)
) STRICT;

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'an event never changes'); END;

CREATE TABLE marks (
    session_id  TEXT    NOT NULL REFERENCES sessions (id),
    owner       TEXT    NOT NULL,
    draft       TEXT    NOT NULL DEFAULT '',
    read_to     INTEGER NOT NULL DEFAULT 0,
    at          INTEGER NOT NULL,
    PRIMARY KEY (session_id, owner)
) STRICT, WITHOUT ROWID;

-- A blob without a hash is an unfinished upload.
CREATE TABLE blobs (
    key         INTEGER PRIMARY KEY,
    owner       TEXT    NOT NULL,
    upload_id   TEXT    UNIQUE,
    hash        TEXT,
    size        INTEGER NOT NULL CHECK (size >= 0),
    created_at  INTEGER NOT NULL,
    CHECK ((hash IS NULL) <> (upload_id IS NULL))
) STRICT;

CREATE UNIQUE INDEX blobs_once_per_owner ON blobs (owner, hash) WHERE hash IS NOT NULL;

CREATE TABLE chunks (
    key       INTEGER PRIMARY KEY,
    blob_key  INTEGER NOT NULL REFERENCES blobs (key) ON DELETE CASCADE,
    start     INTEGER NOT NULL,
    bytes     BLOB    NOT NULL,
    UNIQUE (blob_key, start)
) STRICT;

-- References to a blob: by a message, or by a waiting turn.
CREATE TABLE blob_uses (
    blob_key   INTEGER NOT NULL REFERENCES blobs (key),
    holder_id  TEXT    NOT NULL,
    PRIMARY KEY (blob_key, holder_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_uses_of_holder ON blob_uses (holder_id);

CREATE TABLE workers (
    id          TEXT    NOT NULL PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    boot_id     TEXT    NOT NULL,
    started_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The number of each writer's last committed transaction, to look up a commit whose acknowledgement was lost.
CREATE TABLE commits (
    writer  TEXT    NOT NULL PRIMARY KEY,
    number  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The search index stores no text. It is filled after the write, up to `key` in `indexed`.
-- `text` is the first column because the positions of the first column take the least space.
CREATE VIRTUAL TABLE search USING fts5 (
    text, owner, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

CREATE TABLE indexed (
    only  INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    key   INTEGER NOT NULL
) STRICT;
INSERT INTO indexed (only, key) VALUES (1, 0);
