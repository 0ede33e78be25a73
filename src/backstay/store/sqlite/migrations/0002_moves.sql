-- Moves: the origin and the destination of a store, and the machine names in its addresses.

-- The origin and the destination of this store. A store that is being moved away, or was, rejects writes.
CREATE TABLE moves (
    id     TEXT    NOT NULL,
    state  TEXT    NOT NULL CHECK (state IN ('leaving', 'left', 'arriving', 'arrived')),
    place  TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (id, state)
) STRICT, WITHOUT ROWID;

-- The names of machines in addresses that a move brought from another store.
CREATE TABLE hosts (
    machine  TEXT    NOT NULL PRIMARY KEY,
    host     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
