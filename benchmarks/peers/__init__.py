"""Backstay beside its peers: the same turns, in the same run, on the same disk, each divided by hand-written SQL."""
