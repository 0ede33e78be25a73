-- Moves: a store knows where it came from and where it went, and keeps the names its addresses carry.

-- Where this store came from, and where it went: see `moving`. A store that is leaving or has left takes no writes.
CREATE TABLE moves (
    id     TEXT    NOT NULL,
    state  TEXT    NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'arrived')),
    place  TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (id, state)
) STRICT, WITHOUT ROWID;

-- What a machine is called in the addresses of its directories, where a move brought those from another store.
CREATE TABLE hosts (
    machine  TEXT    NOT NULL PRIMARY KEY,
    host     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
