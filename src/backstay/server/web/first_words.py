"""The default title of a session: the first words of its first message."""

from backstay.model.message import Message

LONGEST = 60


async def first_words(messages: tuple[Message, ...]) -> str:
    """The beginning of the first user message, on one line, cut between words."""
    text = next((message.text for message in messages if message.role == "user" and message.text.strip()), "Untitled")
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST + 1].rpartition(' ')[0] or line[:LONGEST]}…"
