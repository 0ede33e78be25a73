"""Threads, event loops and Ctrl-C: code that every layer may use and that depends on none of them."""
