"""External programs that agents run: each in a process group of its own, with an allow-list environment."""
