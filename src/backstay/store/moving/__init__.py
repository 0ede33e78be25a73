"""Moving: a whole store goes from one database to another, on whatever engines."""
