-- The window that a summary replaces, and how much of it: the columns get the names of their fields.

ALTER TABLE windows RENAME COLUMN behind_id TO summarises_id;
ALTER TABLE windows RENAME COLUMN behind_until TO summarises_until;
ALTER INDEX windows_standing_for RENAME TO windows_summarises;
