"""The history of a session as values: the messages of a turn, the messages that an agent reads, the tail, snapshots."""
