-- Moves: a store knows where it came from and where it went, and keeps the names its addresses carry.

-- Where this store came from, and where it went: see `moving`. A store that is leaving or has left takes no writes.
CREATE TABLE moves (
    id     TEXT COLLATE "C" NOT NULL,
    state  TEXT             NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'arrived')),
    place  TEXT             NOT NULL,
    at     BIGINT           NOT NULL,
    PRIMARY KEY (id, state)
);

-- What a machine is called in the addresses of its directories, where a move brought those from another store.
CREATE TABLE hosts (
    machine  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host     TEXT             NOT NULL
);
