"""The history of a session as values: the messages of a turn, what an agent reads, the tail, snapshots."""
