-- Chat gateways: accounts on chat platforms, the messages that they received, and what they sent.

-- A gateway is one account of one owner. `cursor` is the position in the platform's list of messages, `feed` the position
-- in the owner's feed up to which deliveries are marked as due. Every write for a gateway proves the lease in this row.
CREATE TABLE gateways (
    owner        TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    cursor       TEXT    NOT NULL,
    feed         BIGINT NOT NULL,
    received_at  BIGINT,
    fence        BIGINT NOT NULL CHECK (fence >= 0),
    holder       TEXT COLLATE "C",
    lease_until  BIGINT,
    lease_boot   TEXT,
    lease_ms     BIGINT,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (owner, name),
    CHECK ((holder IS NULL) = (lease_until IS NULL))
);

-- A received message, by the platform's id, forever: it never becomes a second turn. A message without a turn was a
-- command, or was refused. While a turn is gathered, `gathering` names it, and `place` and `parts` say which parts of the
-- turn's input came with the message; `files` lists what still has to be fetched.
CREATE TABLE arrivals (
    owner      TEXT COLLATE "C" NOT NULL,
    gateway    TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    turn_id    TEXT COLLATE "C",
    gathering  TEXT COLLATE "C",
    place      BIGINT NOT NULL,
    parts      BIGINT NOT NULL CHECK (parts >= 0),
    files      TEXT,
    at         BIGINT NOT NULL,
    PRIMARY KEY (owner, gateway, id),
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name),
    CHECK (gathering IS NULL OR turn_id IS NOT NULL),
    CHECK (files IS NULL OR gathering IS NOT NULL)
);

CREATE INDEX arrivals_gathered ON arrivals (owner, gateway, gathering, place) WHERE gathering IS NOT NULL;

-- A session whose answers are sent to a destination. Everything up to the event `cursor` was sent, or failed.
CREATE TABLE deliveries (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner        TEXT COLLATE "C" NOT NULL,
    gateway      TEXT COLLATE "C" NOT NULL,
    destination  TEXT COLLATE "C" NOT NULL,
    session_id   TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    cursor       BIGINT NOT NULL CHECK (cursor >= 0),
    due          BIGINT NOT NULL DEFAULT 0 CHECK (due IN (0, 1)),
    closing      BIGINT NOT NULL DEFAULT 0 CHECK (closing IN (0, 1)),
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name)
);

CREATE UNIQUE INDEX deliveries_once ON deliveries (owner, gateway, destination, session_id);
CREATE INDEX deliveries_of_session ON deliveries (session_id);
CREATE INDEX deliveries_due ON deliveries (owner, gateway, id) WHERE due = 1;

-- One part of what was sent for an event: the characters `low` to `high` (not included) of its text.
CREATE TABLE receipts (
    delivery_id  TEXT COLLATE "C" NOT NULL REFERENCES deliveries (id),
    event        BIGINT NOT NULL,
    part         BIGINT NOT NULL CHECK (part >= 0),
    low          BIGINT NOT NULL CHECK (low >= 0),
    high         BIGINT NOT NULL CHECK (high > low),
    state        TEXT    NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'failed', 'unknown')),
    attempts     BIGINT NOT NULL CHECK (attempts >= 1),
    repeated     BIGINT NOT NULL DEFAULT 0 CHECK (repeated IN (0, 1)),
    platform_id  TEXT,
    reason       TEXT    NOT NULL DEFAULT '',
    at           BIGINT NOT NULL,
    PRIMARY KEY (delivery_id, event, part),
    CHECK ((state = 'sent') = (platform_id IS NOT NULL))
);

CREATE INDEX receipts_in_doubt ON receipts (delivery_id) WHERE state = 'sending';
