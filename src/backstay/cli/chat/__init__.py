"""`backstay chat`: a conversation in a terminal."""
