-- The base schema: sessions, windows, messages, turns, events, blobs, and the search index.
-- Times are milliseconds since 1970 (UTC) on the server's clock. Indexed text is compared byte by byte, so that no
-- change of a system's collations can break an index.

-- Keys of rows that many writers append concurrently. See `horizon` for how a reader follows them without missing any.
CREATE SEQUENCE keys;
SELECT setval('keys', 1);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$;

-- The session row: every write to a session locks this row first.
CREATE TABLE sessions (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner        TEXT COLLATE "C" NOT NULL,
    state        TEXT             NOT NULL CHECK (state IN ('open', 'ended', 'expired', 'deleted')),
    revision     BIGINT           NOT NULL CHECK (revision >= 0),
    context      BIGINT           NOT NULL CHECK (context >= 0),
    fence        BIGINT           NOT NULL CHECK (fence >= 0),
    last_event   BIGINT           NOT NULL CHECK (last_event >= 0),
    held_event   BIGINT           NOT NULL,
    window_id    TEXT COLLATE "C" NOT NULL,
    start        BIGINT           NOT NULL,
    length       BIGINT           NOT NULL CHECK (length >= 0),
    holder       TEXT COLLATE "C",
    lease_until  BIGINT,
    lease_boot   TEXT,
    running_id   TEXT COLLATE "C",
    cancelling   BIGINT           NOT NULL DEFAULT 0,
    waiting      BIGINT           NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    steering     BIGINT           NOT NULL DEFAULT 0 CHECK (steering >= 0),
    queued       BIGINT           NOT NULL DEFAULT 0,
    turns        BIGINT           NOT NULL DEFAULT 0,
    activity     BIGINT           NOT NULL DEFAULT 0,
    touched_at   BIGINT           NOT NULL,
    preview      TEXT,
    title        TEXT,
    title_by     TEXT             CHECK (title_by IN ('person', 'agent')),
    pinned       BIGINT           NOT NULL DEFAULT 0,
    archived     BIGINT           NOT NULL DEFAULT 0,
    tags         TEXT             NOT NULL DEFAULT '[]',
    family       TEXT,
    place        TEXT,
    source_id    TEXT COLLATE "C",
    idle_ttl     BIGINT,
    expires_by   BIGINT,
    created_at   BIGINT           NOT NULL,
    active_at    BIGINT           NOT NULL,
    ended_at     BIGINT,
    CHECK ((running_id IS NULL) = (holder IS NULL)),
    CHECK ((holder IS NULL) = (lease_until IS NULL)),
    CHECK (state = 'open' OR (running_id IS NULL AND waiting = 0))
) WITH (fillfactor = 70);

CREATE INDEX sessions_newest ON sessions (owner, active_at DESC, id DESC) WHERE state <> 'deleted';
CREATE INDEX sessions_mortal ON sessions (id) WHERE state = 'open' AND (idle_ttl IS NOT NULL OR expires_by IS NOT NULL);
CREATE INDEX sessions_closed ON sessions (ended_at) WHERE state IN ('ended', 'expired');
CREATE INDEX sessions_forked ON sessions (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX sessions_running ON sessions (id) WHERE running_id IS NOT NULL;

CREATE TABLE addresses (
    owner       TEXT COLLATE "C" NOT NULL,
    key         BYTEA            NOT NULL CHECK (length(key) = 32),
    spelling    TEXT COLLATE "C" NOT NULL,
    session_id  TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    generation  BIGINT           NOT NULL CHECK (generation >= 1),
    PRIMARY KEY (owner, key)
);

CREATE INDEX addresses_of_session ON addresses (session_id);

-- A window: the first `base_until` messages of its base, if it has one, then the messages of its segments.
-- Its summary replaces the first `behind_until` messages of the window `behind`.
-- `event` is the number of the event that records its opening.
CREATE TABLE windows (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id    TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    parent_id     TEXT COLLATE "C",
    reason        TEXT             NOT NULL CHECK (reason IN ('first', 'undo', 'retry', 'edit', 'fork', 'compaction')),
    start         BIGINT           NOT NULL CHECK (start >= 0),
    base_id       TEXT COLLATE "C" REFERENCES windows (id),
    base_until    BIGINT,
    behind_id     TEXT COLLATE "C" REFERENCES windows (id),
    behind_until  BIGINT,
    event         BIGINT           NOT NULL,
    at            BIGINT           NOT NULL,
    CHECK ((base_id IS NULL) = (base_until IS NULL)),
    CHECK ((behind_id IS NULL) = (behind_until IS NULL))
);

CREATE INDEX windows_of_session ON windows (session_id);
CREATE INDEX windows_based_on ON windows (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX windows_standing_for ON windows (behind_id) WHERE behind_id IS NOT NULL;
-- If two processes compact one window at once, the second finds the child of the first.
CREATE UNIQUE INDEX windows_compacted_once ON windows (parent_id) WHERE reason = 'compaction';

-- Messages `low` to `high` (not included) of `source_id` are in the window from position `start` on.
CREATE TABLE segments (
    window_id  TEXT COLLATE "C" NOT NULL REFERENCES windows (id),
    start      BIGINT           NOT NULL CHECK (start >= 0),
    source_id  TEXT COLLATE "C" NOT NULL REFERENCES windows (id),
    low        BIGINT           NOT NULL CHECK (low >= 0),
    high       BIGINT           NOT NULL CHECK (high > low),
    PRIMARY KEY (window_id, start)
);

CREATE INDEX segments_of_source ON segments (source_id);

CREATE TABLE messages (
    key        BIGINT           NOT NULL PRIMARY KEY DEFAULT nextval('keys'),
    window_id  TEXT COLLATE "C" NOT NULL REFERENCES windows (id),
    position   BIGINT           NOT NULL CHECK (position >= 0),
    id         TEXT COLLATE "C" NOT NULL UNIQUE,
    turn_id    TEXT COLLATE "C",
    role       TEXT             NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system', 'summary')),
    partial    BIGINT           NOT NULL,
    format     BIGINT           NOT NULL,
    body       TEXT             NOT NULL,
    at         BIGINT           NOT NULL,
    UNIQUE (window_id, position)
);

CREATE TRIGGER messages_never_change BEFORE UPDATE ON messages
FOR EACH ROW EXECUTE FUNCTION refuse_change('a message never changes');

-- `event` is the number of the event that records the acceptance of the turn; `first_event` that of its start, as long
-- as its deltas are not folded.
CREATE TABLE turns (
    id                TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id        TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    root_id           TEXT COLLATE "C" NOT NULL,
    agent             TEXT COLLATE "C",
    state             TEXT             NOT NULL CHECK (state IN ('waiting', 'running', 'ended')),
    outcome           TEXT             CHECK (outcome IN ('completed', 'cancelled', 'failed', 'interrupted')),
    reason            TEXT             NOT NULL DEFAULT '',
    steer             BIGINT           NOT NULL DEFAULT 0,
    taken_by          TEXT,
    cancel_requested  BIGINT           NOT NULL DEFAULT 0,
    place             BIGINT           NOT NULL DEFAULT 0,
    event             BIGINT           NOT NULL,
    first_event       BIGINT,
    format            BIGINT           NOT NULL,
    input             TEXT,
    request_key       BYTEA,
    request_id        TEXT,
    request_hash      BYTEA,
    usage             TEXT,
    created_at        BIGINT           NOT NULL,
    started_at        BIGINT,
    ended_at          BIGINT,
    CHECK ((state = 'ended') = (outcome IS NOT NULL)),
    CHECK ((request_id IS NULL) = (request_key IS NULL)),
    CHECK (state <> 'waiting' OR input IS NOT NULL)
);

CREATE INDEX turns_of_session ON turns (session_id);
CREATE UNIQUE INDEX turns_run_alone ON turns (session_id) WHERE state = 'running';
CREATE INDEX turns_waiting ON turns (session_id, place) WHERE state = 'waiting';
CREATE INDEX turns_to_claim ON turns (agent, id) WHERE state = 'waiting' AND taken_by IS NULL;
CREATE UNIQUE INDEX turns_by_request ON turns (request_key) WHERE request_key IS NOT NULL;

CREATE INDEX turns_interrupted ON turns (ended_at) WHERE outcome = 'interrupted';
CREATE INDEX turns_to_fold ON turns (ended_at) WHERE first_event IS NOT NULL AND state = 'ended';

CREATE TABLE calls (
    root_id         TEXT COLLATE "C" NOT NULL,
    ordinal         BIGINT           NOT NULL,
    turn_id         TEXT COLLATE "C" NOT NULL REFERENCES turns (id),
    call_id         TEXT COLLATE "C" NOT NULL,
    name            TEXT             NOT NULL,
    arguments_hash  TEXT             NOT NULL,
    approval        TEXT             NOT NULL CHECK (approval IN ('none', 'asked', 'approved', 'denied')),
    effect          TEXT             NOT NULL CHECK (effect IN ('called', 'returned', 'unknown')),
    PRIMARY KEY (root_id, ordinal)
);

CREATE UNIQUE INDEX calls_of_turn ON calls (turn_id, call_id);

-- `last` is greater than `number` only where the deltas of an ended turn are folded into one row.
-- `source_id`, `low` and `high` are the range of the event's messages.
CREATE TABLE events (
    key         BIGINT           NOT NULL PRIMARY KEY DEFAULT nextval('keys'),
    session_id  TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    number      BIGINT           NOT NULL CHECK (number >= 1),
    last        BIGINT           NOT NULL CHECK (last >= number),
    fence       BIGINT           NOT NULL,
    turn_id     TEXT COLLATE "C",
    kind        TEXT             NOT NULL,
    format      BIGINT           NOT NULL,
    body        TEXT             NOT NULL,
    source_id   TEXT COLLATE "C",
    low         BIGINT,
    high        BIGINT,
    at          BIGINT           NOT NULL,
    UNIQUE (session_id, number)
);

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
FOR EACH ROW EXECUTE FUNCTION refuse_change('an event never changes');

CREATE TABLE marks (
    session_id  TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    owner       TEXT COLLATE "C" NOT NULL,
    draft       TEXT             NOT NULL DEFAULT '',
    read_to     BIGINT           NOT NULL DEFAULT 0,
    at          BIGINT           NOT NULL,
    PRIMARY KEY (session_id, owner)
);

-- A blob without a hash is an unfinished upload.
CREATE TABLE blobs (
    key         BIGINT           NOT NULL PRIMARY KEY DEFAULT nextval('keys'),
    owner       TEXT COLLATE "C" NOT NULL,
    upload_id   TEXT COLLATE "C" UNIQUE,
    hash        TEXT COLLATE "C",
    size        BIGINT           NOT NULL CHECK (size >= 0),
    created_at  BIGINT           NOT NULL,
    CHECK ((hash IS NULL) <> (upload_id IS NULL))
);

CREATE UNIQUE INDEX blobs_once_per_owner ON blobs (owner, hash) WHERE hash IS NOT NULL;

CREATE TABLE chunks (
    key       BIGINT NOT NULL PRIMARY KEY DEFAULT nextval('keys'),
    blob_key  BIGINT NOT NULL REFERENCES blobs (key) ON DELETE CASCADE,
    start     BIGINT NOT NULL,
    bytes     BYTEA  NOT NULL,
    UNIQUE (blob_key, start)
);

-- References to a blob: by a message, or by a waiting turn.
CREATE TABLE blob_uses (
    blob_key   BIGINT           NOT NULL REFERENCES blobs (key),
    holder_id  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (blob_key, holder_id)
);

CREATE INDEX blob_uses_of_holder ON blob_uses (holder_id);

CREATE TABLE workers (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host        TEXT             NOT NULL,
    pid         BIGINT           NOT NULL,
    boot_id     TEXT             NOT NULL,
    started_at  BIGINT           NOT NULL
);

-- The number of each writer's last committed transaction, to look up a commit whose acknowledgement was lost.
CREATE TABLE commits (
    writer  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    number  BIGINT           NOT NULL
) WITH (fillfactor = 50);

-- A fork and a deletion in one family of sessions exclude each other: the deletion must see every remaining reader.
CREATE FUNCTION wait_for_deletions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1113815382, hashtext(NEW.owner));
    RETURN NEW;
END $$;
CREATE TRIGGER forks_wait_for_deletions BEFORE INSERT ON sessions
FOR EACH ROW WHEN (NEW.source_id IS NOT NULL) EXECUTE FUNCTION wait_for_deletions();

-- The search index: our own words of each message, and a word for its owner. It is filled after the write, up to `key`
-- in `indexed`. A text that is too large for a tsvector has none, and is scanned whenever its owner searches.
CREATE TABLE search (
    key    BIGINT   NOT NULL PRIMARY KEY REFERENCES messages (key) ON DELETE CASCADE,
    owner  TEXT COLLATE "C" NOT NULL,
    words  TSVECTOR
);

CREATE INDEX search_words ON search USING gin (words);
CREATE INDEX search_large ON search (owner) WHERE words IS NULL;

CREATE TABLE indexed (
    single  BIGINT NOT NULL PRIMARY KEY CHECK (single = 1),
    key     BIGINT NOT NULL
);
INSERT INTO indexed (single, key) VALUES (1, 0);

