-- What gateways say themselves in chats, beside the answers of agents; the buttons under it; and the settings of chats.

ALTER TABLE arrivals ADD COLUMN sender TEXT;

-- The settings of one chat. NULL: those of the gateway.
CREATE TABLE chats (
    owner        TEXT NOT NULL,
    gateway      TEXT NOT NULL,
    destination  TEXT NOT NULL,
    agent        TEXT,
    if_busy      TEXT CHECK (if_busy IN ('enqueue', 'steer', 'replace', 'fork')),
    PRIMARY KEY (owner, gateway, destination),
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name)
) STRICT, WITHOUT ROWID;

-- A message of the gateway in a chat. `name` says what it is about: there is one notice of a name. It is shown up to the
-- version `shown`, and dropped once it is final and shown.
CREATE TABLE notices (
    id              TEXT    NOT NULL PRIMARY KEY,
    owner           TEXT    NOT NULL,
    gateway         TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    destination     TEXT    NOT NULL,
    kind            TEXT    NOT NULL CHECK (kind IN ('reply', 'busy', 'approval', 'task')),
    person          TEXT,
    turn_id         TEXT,
    root_id         TEXT,
    ordinal         INTEGER,
    arguments_hash  TEXT,
    phase           TEXT    NOT NULL,
    content         TEXT    NOT NULL,
    version         INTEGER NOT NULL CHECK (version >= 1),
    shown           INTEGER NOT NULL DEFAULT 0 CHECK (shown >= 0),
    state           TEXT    NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'failed', 'unknown')),
    repeated        INTEGER NOT NULL DEFAULT 0 CHECK (repeated IN (0, 1)),
    platform_id     TEXT,
    final           INTEGER NOT NULL CHECK (final IN (0, 1)),
    at              INTEGER NOT NULL,
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name),
    CHECK (shown <= version),
    CHECK ((state = 'sent') = (platform_id IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX notices_once ON notices (owner, gateway, name, destination);
CREATE INDEX notices_of_call ON notices (root_id, ordinal) WHERE root_id IS NOT NULL;

-- A button under a notice. Its id is a secret that the platform returns when it is pressed; one press of it is used.
CREATE TABLE buttons (
    id         TEXT    NOT NULL PRIMARY KEY,
    notice_id  TEXT    NOT NULL REFERENCES notices (id),
    action     TEXT    NOT NULL,
    used_in    TEXT,
    used_by    TEXT,
    used_at    INTEGER,
    CHECK ((used_in IS NULL) = (used_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX buttons_of_notice ON buttons (notice_id);

-- Tool calls that wait for a decision.
CREATE INDEX calls_asked ON calls (turn_id) WHERE approval = 'asked' AND effect = 'called';
