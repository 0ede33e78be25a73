-- Web Push: the devices of each owner, what they are told about a session, and the key that names this store to the push
-- services.

CREATE TABLE push_subscriptions (
    owner       TEXT COLLATE "C" NOT NULL,
    number      BIGINT  NOT NULL,
    endpoint    TEXT COLLATE "C" NOT NULL,
    public_key  TEXT    NOT NULL,
    secret      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    text        BIGINT  NOT NULL CHECK (text IN (0, 1)),
    created_at  BIGINT  NOT NULL,
    PRIMARY KEY (owner, number)
);

CREATE UNIQUE INDEX push_endpoints ON push_subscriptions (owner, endpoint);

-- Without a row, devices are told everything.
CREATE TABLE push_choices (
    session_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES sessions (id),
    done        BIGINT  NOT NULL CHECK (done IN (0, 1)),
    needs_you   BIGINT  NOT NULL CHECK (needs_you IN (0, 1))
);

-- One row. Browsers accept messages only from the key that they subscribed to, so it is made once.
CREATE TABLE push_keys (
    id           BIGINT  NOT NULL PRIMARY KEY CHECK (id = 1),
    private_key  TEXT    NOT NULL
);
