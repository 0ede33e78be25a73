"""Search: terms, snippets and results."""
