"""Files of messages for a model: text files as text, others as parts of the provider's API, if the model reads them."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from backstay.agents.port import AgentTurn
from backstay.errors import InputRefused, NotFound, TooLarge
from backstay.model.content import Attachment, Part, Text
from backstay.model.message import Message

# The most bytes of all files in one request, and of one text file.
REQUEST_BYTES = 20 << 20
TEXT_BYTES = 256 << 10

_TEXTS = ("text/*", "application/json", "application/xml", "application/yaml", "application/toml")


class AttachedFiles:
    """Reads the files of a turn that its model accepts.

    If the model does not accept a file of the input, the input is refused before any request. A file elsewhere in the
    history, which another agent may have read, is replaced by a note.

    Args:
        turn: The turn.
        accepts: Media types that the model accepts as parts, such as `image/*`. Text files are sent as text.
    """

    def __init__(self, turn: AgentTurn, accepts: Iterable[str]) -> None:
        self._turn, self._accepts = turn, tuple(accepts)
        self._room = REQUEST_BYTES
        self._texts: dict[str, str] = {}
        self._loaded: dict[str, str] = {}

    def data(self, attachment: Attachment) -> str:
        """The bytes of a file that was read, in base64."""
        return self._loaded[attachment.blob]

    async def history(self) -> tuple[Message, ...]:
        """Read the files of the whole history, and return it with text files as text.

        Raises:
            InputRefused: The model does not accept a file of the input.
        """
        for attachment in _files(self._turn.input.parts):
            if not await self._load(attachment):
                raise self._refusal(attachment)
        # From the end: the latest files are sent, if not all of them fit into one request.
        for message in reversed(self._turn.messages):
            for attachment in _files(message.parts):
                await self._load(attachment)
        return tuple(self._shown(message) for message in self._turn.messages)

    async def parts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Read the files of a steering input, and return its parts with text files as text."""
        for attachment in _files(parts):
            await self._load(attachment)
        return tuple(self._part(part) for part in parts)

    async def _load(self, attachment: Attachment) -> bool:
        """Read a file, unless it was read before. Returns whether it can be sent."""
        if attachment.blob in self._texts or attachment.blob in self._loaded:
            return True
        as_text = _matches(attachment, _TEXTS)
        if not as_text and not _matches(attachment, self._accepts):
            return False
        try:
            content = await self._turn.read(attachment, limit=min(self._room, TEXT_BYTES if as_text else self._room))
            if as_text:
                self._texts[attachment.blob] = content.decode()
            else:
                self._loaded[attachment.blob] = base64.b64encode(content).decode()
        except (TooLarge, NotFound, UnicodeDecodeError):
            return False
        self._room -= len(content)
        return True

    def _shown(self, message: Message) -> Message:
        if not any(isinstance(part, Attachment) for part in message.parts):
            return message
        return replace(message, parts=tuple(self._part(part) for part in message.parts))

    def _part(self, part: Part) -> Part:
        if not isinstance(part, Attachment) or part.blob in self._loaded:
            return part
        if part.blob in self._texts:
            return Text(f"File {part.name}:\n{self._texts[part.blob]}")
        return Text(f"(The file {part.name} was attached here. It is {part.media_type}, which you cannot read.)")

    def _refusal(self, attachment: Attachment) -> InputRefused:
        accepted = ", ".join(("text", *self._accepts))
        return InputRefused(
            f"the agent cannot read {attachment.name!r} ({attachment.media_type}, {attachment.size:,} bytes)",
            hint=f"It reads {accepted}, at most {TEXT_BYTES >> 10} KiB of text and {REQUEST_BYTES >> 20} MiB in all.",
        )


def _files(parts: Iterable[Part]) -> Iterator[Attachment]:
    return (part for part in parts if isinstance(part, Attachment))


def _matches(attachment: Attachment, patterns: Iterable[str]) -> bool:
    kind = attachment.media_type.partition(";")[0].strip().lower()
    return any(fnmatchcase(kind, pattern) for pattern in patterns)
