"""Updates of Telegram: whatever arrives, the poller goes on behind it."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.gateways.platform import Update
from backstay.gateways.telegram.telegram_updates import Account, parse_updates

US = Account(id=7, username="fake_bot")

Json = Any  # Any: whatever JSON has

anything: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "\0", "/undo", "private", "channel"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)

PERSON = {"id": 42, "is_bot": False, "first_name": "Ann", "username": "ann"}
CHAT = {"id": 42, "type": "private"}
FILE = {"file_id": "f", "file_name": "a.txt", "mime_type": "text/plain"}
VALID: list[Json] = [
    {"update_id": 5, "message": {"message_id": 1, "chat": CHAT, "from": PERSON, "text": "hello"}},
    {
        "update_id": 6,
        "message": {
            "message_id": 2,
            "chat": {"id": -100, "type": "supergroup"},
            "from": PERSON,
            "caption": "look",
            "photo": [{"file_id": "p", "width": 90, "height": 90}],
            "document": FILE,
            "voice": {"file_id": "v"},
            "media_group_id": "a1",
            "message_thread_id": 3,
            "is_topic_message": True,
            "reply_to_message": {"message_id": 1, "chat": CHAT, "from": {"id": 7, "is_bot": True}},
        },
    },
    {
        "update_id": 7,
        "callback_query": {"id": "9", "from": PERSON, "data": "x", "message": {"message_id": 1, "chat": CHAT}},
    },
]


def paths(value: Json, here: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The places of all values inside of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, child in inner for path in paths(child, (*here, key)))]


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    """A valid update in which one value is another one."""
    update = copy.deepcopy(draw(st.sampled_from(VALID)))
    path = draw(st.sampled_from(paths(update)[1:]))
    inner = update
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = draw(anything)
    return update


@given(st.lists(damaged() | anything, max_size=4))
def test_any_update_is_understood_or_passed_over(raw: list[Json]) -> None:
    updates = [*parse_updates(raw, 3, US)]

    cursors = [int(update.cursor) for update in updates]
    assert cursors == sorted(cursors)
    assert all(3 <= cursor <= (1 << 52) + 1 for cursor in cursors)
    for update in updates:
        for text in texts_in(update):
            assert "\0" not in text
            text.encode()


def test_half_a_character_in_a_name_hides_no_message() -> None:
    (update,) = parse_updates([copy.deepcopy(VALID[0]) | {"\ud800": ["\ud800"]}], 0, US)

    assert update.cursor == "6"
    assert update.message is not None


def texts_in(update: Update) -> list[str]:
    found: list[str] = []
    if (message := update.message) is not None:
        found += [message.id, message.text, message.name, message.album or "", message.place.destination]
        found += [text for file in message.files for text in (file.id, file.name, file.media_type)]
    if (press := update.press) is not None:
        found += [press.id, press.button, press.name, press.message or "", press.place.destination]
    return found


@given(anything)
def test_an_answer_that_is_no_list_has_no_updates(raw: Json) -> None:
    if not isinstance(raw, list):
        assert [*parse_updates(raw, 0, US)] == []


def test_valid_updates_are_understood() -> None:
    text, files, press = parse_updates(json.loads(json.dumps(VALID)), 0, US)

    assert text.message is not None
    assert (text.message.id, text.message.sender, text.message.name, text.message.text) == (
        "42/1",
        "42",
        "Ann",
        "hello",
    )
    assert files.message is not None
    assert files.message.place.thread == "3"
    assert [file.name for file in files.message.files] == ["photo-2.jpg", "a.txt", "voice-2.ogg"]
    assert files.message.to_us
    assert press.press is not None
    assert (press.press.button, press.press.message, press.press.sender) == ("x", "42/1", "42")


@pytest.mark.parametrize("text", ["hey @Fake_Bot", "/undo", "/undo@fake_bot"])
def test_a_message_in_a_group_is_for_the_bot_that_it_names(text: str) -> None:
    assert _in_group(text)
    assert not _in_group(text.lower().replace("fake_bot", "other_bot").replace("/undo", "/undo@x", 1))


def _in_group(text: str) -> bool:
    message = {"message_id": 1, "chat": {"id": -1, "type": "group"}, "from": PERSON, "text": text}
    (update,) = parse_updates([{"update_id": 1, "message": message}], 0, US)
    assert update.message is not None
    return update.message.to_us


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"sticker": {"emoji": "🦆"}}, "[sticker: 🦆]"),
        ({"location": {"latitude": 47.37, "longitude": 8.54}}, "[location: 47.370000, 8.540000]"),
        ({"voice": {"file_id": "v"}}, ""),
        ({"dice": {"value": 3}}, None),
    ],
)
def test_a_message_without_a_text_is_described(content: Json, text: str | None) -> None:
    raw = [{"update_id": 5, "message": {"message_id": 1, "chat": CHAT, "from": PERSON} | content}]
    (update,) = parse_updates(raw, 0, US)
    assert (None if update.message is None else update.message.text) == text
