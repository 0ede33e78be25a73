-- Moves: the origin and the destination of a store, and the machine names in its addresses.

-- The origin and the destination of this store. A store that is being moved away, or was, rejects writes.
CREATE TABLE moves (
    id     TEXT COLLATE "C" NOT NULL,
    state  TEXT             NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'arrived')),
    place  TEXT             NOT NULL,
    at     BIGINT           NOT NULL,
    PRIMARY KEY (id, state)
);

-- The names of machines in addresses that a move brought from another store.
CREATE TABLE hosts (
    machine  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host     TEXT             NOT NULL
);
