-- What gateways say themselves in chats, beside the answers of agents; the buttons under it; and the settings of chats.

ALTER TABLE arrivals ADD COLUMN sender TEXT COLLATE "C";

-- The settings of one chat. NULL: those of the gateway.
CREATE TABLE chats (
    owner        TEXT COLLATE "C" NOT NULL,
    gateway      TEXT COLLATE "C" NOT NULL,
    destination  TEXT COLLATE "C" NOT NULL,
    agent        TEXT COLLATE "C" ,
    if_busy      TEXT COLLATE "C" CHECK (if_busy IN ('enqueue', 'steer', 'replace', 'fork')),
    PRIMARY KEY (owner, gateway, destination),
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name)
);

-- A message of the gateway in a chat. `name` says what it is about: there is one notice of a name. It is shown up to the
-- version `shown`, and dropped once it is final and shown.
CREATE TABLE notices (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner           TEXT COLLATE "C" NOT NULL,
    gateway         TEXT COLLATE "C" NOT NULL,
    name            TEXT COLLATE "C" NOT NULL,
    destination     TEXT COLLATE "C" NOT NULL,
    kind            TEXT COLLATE "C" NOT NULL CHECK (kind IN ('reply', 'busy', 'approval', 'task')),
    person          TEXT COLLATE "C" ,
    turn_id         TEXT COLLATE "C" ,
    root_id         TEXT COLLATE "C" ,
    ordinal         BIGINT,
    arguments_hash  TEXT COLLATE "C" ,
    phase           TEXT    NOT NULL,
    content         TEXT    NOT NULL,
    version         BIGINT NOT NULL CHECK (version >= 1),
    shown           BIGINT NOT NULL DEFAULT 0 CHECK (shown >= 0),
    state           TEXT COLLATE "C" NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'failed', 'unknown')),
    repeated        BIGINT NOT NULL DEFAULT 0 CHECK (repeated IN (0, 1)),
    platform_id     TEXT COLLATE "C" ,
    final           BIGINT NOT NULL CHECK (final IN (0, 1)),
    at              BIGINT NOT NULL,
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name),
    CHECK (shown <= version),
    CHECK ((state = 'sent') = (platform_id IS NOT NULL))
);

CREATE UNIQUE INDEX notices_once ON notices (owner, gateway, name, destination);
CREATE INDEX notices_of_call ON notices (root_id, ordinal) WHERE root_id IS NOT NULL;

-- A button under a notice. Its id is a secret that the platform returns when it is pressed; one press of it is used.
CREATE TABLE buttons (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    notice_id  TEXT COLLATE "C" NOT NULL REFERENCES notices (id),
    action     TEXT    NOT NULL,
    used_in    TEXT COLLATE "C" ,
    used_by    TEXT COLLATE "C" ,
    used_at    BIGINT,
    CHECK ((used_in IS NULL) = (used_at IS NULL))
);

CREATE INDEX buttons_of_notice ON buttons (notice_id);

-- Tool calls that wait for a decision.
CREATE INDEX calls_asked ON calls (turn_id) WHERE approval = 'asked' AND effect = 'called';
