-- The health of gateways, and the people who were let in by a code.

-- `answered_at` is when the platform last answered a request for messages, `problem` why it does not. Until
-- `pairing_until`, codes are given although somebody was let in already.
ALTER TABLE gateways ADD COLUMN answered_at INTEGER;
ALTER TABLE gateways ADD COLUMN problem TEXT NOT NULL DEFAULT '';
ALTER TABLE gateways ADD COLUMN pairing_until INTEGER;

-- A person who may write to a gateway since `paired_at`, or who was given a code that is not confirmed yet.
CREATE TABLE gateway_people (
    owner       TEXT    NOT NULL,
    gateway     TEXT    NOT NULL,
    person      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    code        TEXT,
    code_until  INTEGER,
    paired_at   INTEGER,
    PRIMARY KEY (owner, gateway, person),
    FOREIGN KEY (owner, gateway) REFERENCES gateways (owner, name),
    CHECK ((code IS NULL) = (code_until IS NULL)),
    CHECK ((code IS NULL) = (paired_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
