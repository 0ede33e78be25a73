"""Naming: a session that nobody has named is called by the first words that were said in it."""

from backstay.model.message import Message

LONGEST = 60


async def first_words(messages: tuple[Message, ...]) -> str:
    """The beginning of the first thing a person said, on one line, cut between words."""
    said = next((message.text for message in messages if message.role == "user" and message.text.strip()), "Untitled")
    line = " ".join(said.split())
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST + 1].rpartition(' ')[0] or line[:LONGEST]}…"
