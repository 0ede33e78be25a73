"""The single steps of exports and imports."""
