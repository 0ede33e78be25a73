-- The best matches of searches that match very many messages, so that the next such search does not rank all of them.
-- `query` is a hash of the owner and the search. The list is complete up to the message `key`: no other match up to there
-- ranks above its last one, at the `usual` length of a text at that time. A row whose `rewound` is not the current one is
-- out of date: since then a key was, or may be, given to another message.
CREATE TABLE best_matches (
    query    BLOB    NOT NULL PRIMARY KEY,
    key      INTEGER NOT NULL,
    usual    REAL    NOT NULL,
    matches  BLOB    NOT NULL,
    rewound  INTEGER NOT NULL,
    at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE indexed ADD COLUMN rewound INTEGER NOT NULL DEFAULT 0;
