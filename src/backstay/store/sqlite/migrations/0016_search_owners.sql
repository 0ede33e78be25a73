-- Rows of the search index are numbered by owner: a message has the row (number of its owner << 36) + its key. So the
-- texts of one owner are one range of rows, and a search reads no other rows.
CREATE TABLE search_owners (
    owner   TEXT    NOT NULL PRIMARY KEY,
    number  INTEGER NOT NULL UNIQUE CHECK (number BETWEEN 0 AND 134217727)
) STRICT, WITHOUT ROWID;

INSERT INTO search_owners (owner, number) SELECT owner, row_number() OVER (ORDER BY min(id)) - 1 FROM sessions GROUP BY owner;

-- The owner with the number 0 has the same rows as before. If there are others, all messages have to be indexed again.
INSERT INTO search (search) SELECT 'delete-all' WHERE (SELECT count(*) FROM search_owners) > 1;
UPDATE indexed SET key = 0 WHERE (SELECT count(*) FROM search_owners) > 1;
