"""Values about a whole store: its size, its findings, the progress of a move."""
