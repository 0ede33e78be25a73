"""The extended query protocol of PostgreSQL: statements that are sent together, and their results."""
