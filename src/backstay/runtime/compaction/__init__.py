"""Compaction: the policy, the compactor, the summary and the back-off."""
