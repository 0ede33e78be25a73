"""What every chat platform does, against a fake of its service.

A platform passes if a class like `TestTelegram` in `test_platforms.py` derives from `PlatformContract`, with a fixture
`service`: a `ChatService`, which is the fake as its people see it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol

import pytest

from backstay.gateways.platform import (
    Button,
    ChatGone,
    ChatPlace,
    IncomingMessage,
    OutgoingFile,
    Platform,
    PlatformFile,
    SendDeferred,
    SendRefused,
    SendUncertain,
    Update,
)

Trouble = Literal["wait", "not sent", "lost", "refused"]
"""The service asks to wait, fails before or after it has done what was asked, or refuses."""

NASTY = [
    "plain",
    "**bold** _and [a link](https://example.org) `code`",
    "a < b && c > d </b><script>",
    "```python\nnever closed <b>",
    "*unbalanced _marks `everywhere ** __ ~~",
    "🦆 ـ‎ é \u202eright to left",
    "> quote\n\n- item\n1. one\n\n| a | b |",
]


class Visible(NamedTuple):
    """A message of the account, as people see it."""

    id: str
    text: str
    file: bytes | None = None
    buttons: tuple[str, ...] = ()


class ChatService(Protocol):
    """The fake of a service, as its people see it. One person, called Ann, has a private chat and a group."""

    def connect(self) -> AbstractAsyncContextManager[Platform]:
        """The platform, connected to the service."""
        ...

    def place(self, *, group: bool = False) -> ChatPlace:
        """Ann's private chat, or the group."""
        ...

    def write(self, text: str, *, group: bool = False, file: bytes | None = None) -> None:
        """Ann writes, and names the account."""
        ...

    def press(self, message: str, button: str) -> None:
        """Ann presses a button in her private chat."""
        ...

    def visible(self, *, group: bool = False) -> list[Visible]:
        """The messages of the account in a chat."""
        ...

    def previews(self) -> list[str]:
        """The unfinished texts that Ann's private chat shows beside its messages."""
        ...

    def expect(self, operation: str, trouble: Trouble) -> None:
        """The next call of this method of the platform meets trouble."""
        ...

    def block(self) -> None:
        """Ann blocks the account."""
        ...


Call = Callable[[Platform, ChatPlace, str], Awaitable[object]]
PICTURE = OutgoingFile(name="cat.png", media_type="image/png", data=b"\x89PNG cat")
CALLS: dict[str, Call] = {
    "send": lambda platform, place, _: platform.send(place, "hello"),
    "send_file": lambda platform, place, _: platform.send_file(place, PICTURE, ""),
    "edit": lambda platform, _, message: platform.edit(message, "another text"),
    "remove": lambda platform, _, message: platform.remove(message),
    "preview": lambda platform, place, _: platform.preview(place, "unfinished", number=1, message=None),
    "ask": lambda platform, place, _: platform.ask(place, "well?", ((Button(id="b1", label="Yes"),),)),
}


class PlatformContract:
    """The rules."""

    # --- receiving --------------------------------------------------------------------------------------------------

    async def test_the_name_of_the_account_is_always_the_same(self, service: ChatService) -> None:
        async with service.connect() as platform:
            name = await platform.identify()
        async with service.connect() as again:
            assert await again.identify() == name
        kind, _, account = name.partition("/")
        assert kind.isalpha()
        assert account

    async def test_the_first_call_catches_up_with_what_was_written_before(self, service: ChatService) -> None:
        for text in ("one", "two", "three"):
            service.write(text)
        async with service.connect() as platform:
            await platform.identify()
            found = _messages(await _received(platform, "", 3))

        assert [message.text for message in found] == ["one", "two", "three"]
        assert [message.number for message in found] == sorted({message.number for message in found})
        assert {message.place for message in found} == {service.place()}

    async def test_a_message_comes_again_until_its_cursor_is_passed(self, service: ChatService) -> None:
        service.write("one")
        async with service.connect() as platform:
            await platform.identify()
            first = await _received(platform, "", 1)
            # The gateway died before it stored the message.
            second = await _received(platform, "", 1)
            service.write("two")
            third = await _received(platform, second[-1].cursor, 1)

        assert first == second
        assert [message.text for message in _messages(third)] == ["two"]

    async def test_a_message_says_where_it_was_written_and_to_whom(self, service: ChatService) -> None:
        service.write("private")
        service.write("hello all", group=True)
        async with service.connect() as platform:
            await platform.identify()
            private, group = _messages(await _received(platform, "", 2))

        assert (private.place, private.to_us) == (service.place(), True)
        assert (group.place, group.to_us) == (service.place(group=True), True)
        assert private.sender == group.sender
        assert len({private.id, group.id}) == 2

    async def test_a_file_of_a_message_can_be_fetched(self, service: ChatService) -> None:
        service.write("look", file=b"\x89PNG cat")
        async with service.connect() as platform:
            await platform.identify()
            (message,) = _messages(await _received(platform, "", 1))
            (file,) = message.files

            assert await platform.fetch(file) == b"\x89PNG cat"
            with pytest.raises(SendRefused):
                await platform.fetch(PlatformFile(id="unknown", name="x", media_type="image/png"))

    async def test_trouble_while_receiving_loses_nothing(self, service: ChatService) -> None:
        service.write("one")
        async with service.connect() as platform:
            await platform.identify()
            for trouble, error in (("not sent", SendUncertain), ("lost", SendUncertain), ("wait", SendDeferred)):
                service.expect("receive", trouble)  # type: ignore[arg-type]  # one of the literals
                with pytest.raises(error):
                    await platform.receive("")

            assert len(await _received(platform, "", 1)) == 1

    # --- sending ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", NASTY)
    async def test_a_text_arrives_whatever_is_in_it(self, service: ChatService, text: str) -> None:
        async with service.connect() as platform:
            await platform.identify()
            name = await platform.send(service.place(), text)

            (shown,) = service.visible()
            assert shown.id == name
            assert _letters(text) <= _letters(shown.text)

    async def test_the_longest_text_arrives_with_a_line_of_the_gateway(self, service: ChatService) -> None:
        async with service.connect() as platform:
            await platform.identify()
            await platform.send(service.place(), "a line\n" + "x" * platform.most_units)

            assert len(service.visible()) == 1

    async def test_a_message_can_be_edited_twice_and_removed(self, service: ChatService) -> None:
        async with service.connect() as platform:
            await platform.identify()
            name = await platform.send(service.place(group=True), "first")
            await platform.edit(name, "second")
            await platform.edit(name, "second")
            assert [shown.text for shown in service.visible(group=True)] == ["second"]

            await platform.remove(name)
            assert service.visible(group=True) == []
            with pytest.raises(SendRefused):
                await platform.edit(name, "third")

    async def test_a_file_arrives_with_its_line(self, service: ChatService) -> None:
        async with service.connect() as platform:
            await platform.identify()
            name = await platform.send_file(service.place(), PICTURE, "a cat")

            assert service.visible() == [Visible(name, "a cat", PICTURE.data)]

    async def test_a_pressed_button_returns_its_id(self, service: ChatService) -> None:
        async with service.connect() as platform:
            await platform.identify()
            name = await platform.ask(service.place(), "well?", ((Button(id="b1", label="Yes"),),))
            assert service.visible()[0].buttons == ("Yes",)
            service.press(name, "b1")
            (update,) = await _received(platform, "", 1)
            assert update.press is not None
            await platform.answer(update.press.id, "thank you")
            await platform.edit(name, "answered")

            assert (update.press.button, update.press.message, update.press.place) == ("b1", name, service.place())
            assert service.visible() == [Visible(name, "answered")]

    # --- previews ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("group", [False, True])
    async def test_a_preview_changes_in_place_and_none_stays(self, service: ChatService, group: bool) -> None:
        place = service.place(group=group)
        async with service.connect() as platform:
            await platform.identify()
            assert platform.pace(place).seconds > 0
            shown = None
            for text in ("so", "so far", "so far, **so", "so far, **so"):
                shown = await platform.preview(place, text, number=1, message=shown)
            unfinished = service.visible(group=group) if group else []
            assert len(unfinished) + len(service.previews()) == 1

            await platform.send(place, "so far, so good")
            if shown is not None:
                await platform.remove(shown)

        assert [one.text for one in service.visible(group=group)] == ["so far, so good"]
        assert service.previews() == []

    # --- trouble ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("operation", sorted(CALLS))
    @pytest.mark.parametrize(
        ("trouble", "error"),
        [("wait", SendDeferred), ("not sent", SendUncertain), ("lost", SendUncertain), ("refused", SendRefused)],
    )
    async def test_trouble_has_its_type(
        self, service: ChatService, operation: str, trouble: Trouble, error: type[Exception]
    ) -> None:
        async with service.connect() as platform:
            await platform.identify()
            name = await platform.send(service.place(), "before")
            service.expect(operation, trouble)

            with pytest.raises(error) as raised:
                await CALLS[operation](platform, service.place(), name)

            if trouble == "wait":
                assert isinstance(raised.value, SendDeferred)
                assert raised.value.seconds
            assert not isinstance(raised.value, ChatGone)

    @pytest.mark.parametrize("operation", ["send", "send_file", "preview", "ask"])
    async def test_a_chat_that_blocks_the_account_is_gone(self, service: ChatService, operation: str) -> None:
        async with service.connect() as platform:
            await platform.identify()
            service.block()

            with pytest.raises(ChatGone):
                await CALLS[operation](platform, service.place(), "")


async def _received(platform: Platform, cursor: str, count: int) -> Sequence[Update]:
    """So many entries after a cursor, which may come in several answers."""
    found: list[Update] = []
    while len(found) < count:
        found += await platform.receive(found[-1].cursor if found else cursor)
    return found


def _messages(updates: Sequence[Update]) -> list[IncomingMessage]:
    return [update.message for update in updates if update.message is not None]


def _letters(text: str) -> set[str]:
    return {letter for letter in text if letter.isalnum()}
