"""Invalid input: a value that cannot be stored and read again is rejected with a hint, and changes nothing."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pytest

from backstay.errors import BackstayError, Conflict, InvalidPayload, NotFound, NothingToDo, RevisionMismatch, TooLarge
from backstay.model import message
from backstay.model.content import Attachment, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.message import NewMessage
from backstay.model.session import SessionFilter, Ttl
from backstay.model.turn import Completed, Failed, OpenTurn
from backstay.store import Store
from tests.contract.base import OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    Seen,
    answer_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    run,
    said_in,
    say,
    start,
)
from tests.contract.sessions.owners import BusyAndIdle, EveryVerbContract, accepted

MIB = 1 << 20
NAN, INFINITY = float("nan"), float("inf")

# Values that a type checker would reject, and values that only look storable.
Bad = Any


def nested(depth: int) -> Bad:
    """Lists within lists, with this depth."""
    value: Bad = []
    for _ in range(depth - 1):
        value = [value]
    return value


def endless() -> Bad:
    """A list that contains itself."""
    value: list[Bad] = []
    value.append(value)
    return value


BAD_JSON: dict[str, Bad] = {
    "NaN": NAN,
    "infinity": {"cost": -INFINITY},
    "NaN deep within": [{"a": [[NAN]]}],
    "too deep": nested(100),
    "far too deep": nested(100_000),
    "too deep by keys": {"a": {"b": nested(99)}},
    "endless": endless(),
    "an object": object(),
    "bytes": {"a": b"bytes"},
    "a set": {"a": {1}},
    "a set that hides NaN": ({NAN},),
    "a date": datetime(2027, 1, 15, tzinfo=UTC),
    "a decimal": Decimal("1.50"),
    "a value of ours": [Text("hello")],
    "a number as key": {1: "one"},
    "bytes as key": {b"one": 1},
    "nothing as key": [{None: 1}],
    "an integer that no database holds": 2**64,
    "an integer that no database holds, below zero": [-(2**63) - 1],
    "a lone surrogate": "\ud800",
    "a lone surrogate within": {"a": ["tail \udfff"]},
    "a lone surrogate as key": {"\ud800": 1},
}

BAD_PARTS: dict[str, Bad] = {
    "a lone surrogate": Text("a\ud800"),
    "half a pair": Text("\udc9f first"),
    "text that is a number": Text(5),  # type: ignore[arg-type]  # the wrong type is the point
    "text that is missing": Text(None),  # type: ignore[arg-type]
    "text that is bytes": Text(b"hello"),  # type: ignore[arg-type]
    "a thought that is a number": Thought(5),  # type: ignore[arg-type]
    "a kind that is a number": Custom(5),  # type: ignore[arg-type]
    "a kind with a lone surrogate": Custom("\ud800"),
    **{f"JSON: {name}": Custom("json", value) for name, value in BAD_JSON.items()},
}

BAD_CONTENT: dict[str, Bad] = {
    "nothing": None,
    "a number": 5,
    "bytes": b"hello",
    "no parts": [],
    "a dictionary of an unknown type": {"type": "sound", "text": "hello"},
    "a dictionary of an agent's message": {"role": "assistant", "content": "hello"},
    "a dictionary without text among texts": ["hello", {"type": "text", "text": 5}],
    "usage": Usage(output_tokens=1),
    "a message": message.user("hello"),
    "a tool result": ToolResult("c1", "found"),
    "a tool call": ToolCall("c1", "search"),
    "an attachment that was never uploaded": Attachment("0" * 64, "tea.png", "image/png", 5),
    "an attachment without a hash": Attachment(5, "tea.png", "image/png", 5),  # type: ignore[arg-type]
    **BAD_PARTS,
}

# No client sends these; a caller that records its own agent may have them.
EMPTY: dict[str, Bad] = {
    "empty text": "",
    "white space": " \n\t",
    "empty parts": [Text(""), Text(" ")],
}

TOO_LARGE: dict[str, Bad] = {
    "a long text": "x" * (MIB + 1),
    "a text of many bytes": "茶" * (MIB // 3 + 1),
    "many parts": [Text("x" * 1_000)] * 1_100,
    "large JSON": Custom("json", ["x" * 1_000] * 1_100),
}

BAD_BODIES: dict[str, Bad] = {
    **BAD_PARTS,
    "nothing": None,
    "a text": "hello",
    "an attachment": Attachment("0" * 64, "tea.png", "image/png", 5),
    "a call whose id is a number": ToolCall(5, "search"),  # type: ignore[arg-type]
    "a call without a name": ToolCall("c9", None),  # type: ignore[arg-type]
    "a call with a lone surrogate as id": ToolCall("\ud800", "search"),
    "a call with a lone surrogate as name": ToolCall("c9", "\ud800"),
    "a call with NUL in its id": ToolCall("c\0", "search"),
    "a call with NUL in its name": ToolCall("c9", "sea\0rch"),
    "a call that perhaps asks": ToolCall("c9", "search", approval="perhaps"),  # type: ignore[arg-type]
    "a result whose id is a number": ToolResult(5),  # type: ignore[arg-type]
    "a result with a lone surrogate as id": ToolResult("\ud800"),
    "a result that is perhaps an error": ToolResult("c1", error="perhaps"),  # type: ignore[arg-type]
    "usage in words": Usage(input_tokens="many"),  # type: ignore[arg-type]
    "half a token": Usage(input_tokens=0.5),  # type: ignore[arg-type]
    "a cost that is no number": Usage(cost=NAN),
    "a cost without end": Usage(cost=INFINITY),
    "less than no cost": Usage(cost=-0.5),
    "less than no tokens read": Usage(input_tokens=-1),
    "less than no tokens said": Usage(output_tokens=-1),
    "less than no tokens cached": Usage(cached_tokens=-1),
    "less than no tokens of reasoning": Usage(reasoning_tokens=-1),
    "more tokens than can be counted": Usage(input_tokens=1 << 63),
    "a model that is a number": Usage(model=5),  # type: ignore[arg-type]
    "a model with a lone surrogate": Usage(model="\ud800"),
    **{f"arguments: {name}": ToolCall("c9", "search", value) for name, value in BAD_JSON.items()},
    **{f"result: {name}": ToolResult("c1", value) for name, value in BAD_JSON.items()},
}

BAD_MESSAGES: dict[str, Bad] = {
    "nothing": None,
    "no messages": [],
    "a text": "hello",
    "texts": ["hello"],
    "one message": message.user("hello"),
    "messages yet to come": (message.user(text) for text in ("a", "b")),
    "an unknown role": [NewMessage(role="robot", parts=(Text("hello"),))],  # type: ignore[arg-type]
    "no role": [NewMessage(role=None, parts=(Text("hello"),))],  # type: ignore[arg-type]
    "no parts": [NewMessage(role="user", parts=())],
    "a part for parts": [NewMessage(role="user", parts=Text("hello"))],  # type: ignore[arg-type]
    "parts that are text": [NewMessage(role="user", parts="hello")],  # type: ignore[arg-type]
    "a part that is text": [NewMessage(role="user", parts=("hello",))],  # type: ignore[arg-type]
    "perhaps partial": [NewMessage(role="user", parts=(Text("hello"),), partial="perhaps")],  # type: ignore[arg-type]
    "a call whose id is a number": [message.assistant(ToolCall(5, "search"))],  # type: ignore[arg-type]
    "one bad message among good ones": [message.user("hello"), message.assistant(Text(5))],  # type: ignore[arg-type]
    **{name: [NewMessage(role="assistant", parts=(part,))] for name, part in BAD_PARTS.items()},
}

BAD_NAMES: dict[str, Bad] = {
    "a lone surrogate": "a\ud800",
    "NUL": "a\0b",
    "a number": 5,
    "bytes": b"hello",
    "a list": ["hello"],
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A session with a turn that runs and one that waits, and another where nothing does."""

    proof: OpenTurn
    waiting: TurnId
    busy: SessionId
    idle: SessionId
    question: MessageId


Send = Callable[[Store, Place, Bad], object]

# Every verb that takes a person's message.
SENDING: dict[str, Send] = {
    "submit": lambda store, it, said: store.submit(it.idle, said, owner=ME),
    "submit with a request id": lambda store, it, said: store.submit(it.idle, said, owner=ME, request_id="r1"),
    "submit and start": lambda store, it, said: store.submit(it.idle, said, owner=ME, start=True),
    "submit to a new address": lambda store, _, said: store.submit(room(), said, owner=ME),
    "steer": lambda store, it, said: store.submit(it.busy, said, owner=ME, if_busy="steer"),
    "replace": lambda store, it, said: store.submit(it.busy, said, owner=ME, if_busy="replace"),
    "fork": lambda store, it, said: store.submit(it.busy, said, owner=ME, if_busy="fork"),
    "edit_waiting": lambda store, it, said: store.edit_waiting(it.waiting, said, owner=ME),
    "edit": lambda store, it, said: store.edit(it.idle, it.question, said, owner=ME, agent=AGENT),
}

RECORDING: dict[str, Send] = {
    "record": lambda store, it, said: store.record(it.idle, said, owner=ME),
    "record with a request id": lambda store, it, said: store.record(it.idle, said, owner=ME, request_id="r1"),
    "record behind a running turn": lambda store, it, said: store.record(it.busy, said, owner=ME),
    "record at a new address": lambda store, _, said: store.record(room(), said, owner=ME),
}

SAYING: dict[str, Send] = {
    "checkpoint": lambda store, it, body: store.checkpoint(it.proof, [Text("before"), body]),
    "finish": lambda store, it, body: store.finish(it.proof, Completed(), bodies=[Text("before"), body]),
}

NAMING: dict[str, Send] = {
    "rename": lambda store, it, name: store.rename(it.idle, name, owner=ME),
    "tag": lambda store, it, name: store.tag(it.idle, owner=ME, add=["good", name]),
    "save_draft": lambda store, it, name: store.save_draft(it.idle, name, owner=ME),
    "the agent of submit": lambda store, it, name: store.submit(it.idle, "hello", owner=ME, agent=name),
    "the agent of steer": lambda store, it, name: store.submit(it.busy, "hello", owner=ME, agent=name, if_busy="steer"),
    "the agent of retry": lambda store, it, name: store.retry(it.idle, owner=ME, agent=name),
    "the agent of edit": lambda store, it, name: store.edit(it.idle, it.question, "else", owner=ME, agent=name),
    "the request id of submit": lambda store, it, name: store.submit(it.idle, "hello", owner=ME, request_id=name),
    "the request id of steer": lambda store, it, name: store.submit(
        it.busy, "hello", owner=ME, request_id=name, if_busy="steer"
    ),
    "the request id of record": lambda store, it, name: store.record(
        it.idle, [message.user("hello")], owner=ME, request_id=name
    ),
    "the request id of retry": lambda store, it, name: store.retry(it.idle, owner=ME, agent=AGENT, request_id=name),
    "the request id of edit": lambda store, it, name: store.edit(
        it.idle, it.question, "else", owner=ME, agent=AGENT, request_id=name
    ),
    "the owner of create": lambda store, _, name: store.create(owner=name),
    "the owner of resolve": lambda store, _, name: store.resolve(room(), owner=name),
    "the owner of submit": lambda store, _, name: store.submit(room(), "hello", owner=name),
    "the owner of record": lambda store, _, name: store.record(room(), [message.user("hello")], owner=name),
    "the owner of an upload": lambda store, _, name: store.begin_upload(owner=name),
}

LIVING: dict[str, Callable[[Store, Bad], object]] = {
    "resolve": lambda store, ttl: store.resolve(room(), owner=ME, ttl=ttl),
    "create": lambda store, ttl: store.create(owner=ME, ttl=ttl),
    "submit": lambda store, ttl: store.submit(room(), "hello", owner=ME, ttl=ttl),
    "record": lambda store, ttl: store.record(room(), [message.user("hello")], owner=ME, ttl=ttl),
}

BAD_TTLS: dict[str, Bad] = {
    "no time": Ttl(idle=0),
    "no time at all": Ttl(absolute=0),
    "less than no time": Ttl(idle=-1),
    "NaN": Ttl(idle=NAN),
    "for ever": Ttl(absolute=INFINITY),
    "longer than any calendar": Ttl(idle=1e300),
    "in words": Ttl(idle="long"),  # type: ignore[arg-type]
    "a number": 3600,
}


def all_of(name: str, table: dict[str, Bad]) -> pytest.MarkDecorator:
    """One case for each line of the table."""
    return pytest.mark.parametrize(name, table.values(), ids=table.keys())


def but(table: dict[str, Send], *names: str) -> dict[str, Send]:
    """The table without these lines."""
    return {name: send for name, send in table.items() if name not in names}


def refuse(store: Store, place: Place, error: type[BackstayError], verbs: dict[str, Send], given: Bad) -> None:
    """Each of these verbs rejects its input with a hint, and changes nothing."""
    before = see(store, place)
    answers = {name: answer_of(partial(verb, store, place, given)) for name, verb in verbs.items()}
    assert {name: type(answer).__name__ for name, answer in answers.items() if type(answer) is not error} == {}
    assert [name for name, answer in answers.items() if not getattr(answer, "hint", "")] == []
    assert see(store, place) == before


def see(store: Store, place: Place) -> tuple[int, Seen, Seen]:
    """Everything that is visible in this place, and the number of all sessions."""
    return (
        store.about().sessions,
        look(store, place.idle),
        look(store, place.busy, [place.proof.id, place.waiting]),
    )


class InputContract(EveryVerbContract):
    """Rules for invalid input."""

    @pytest.fixture
    def place(self, store: Store) -> Place:
        """Where the bad input arrives."""
        idle, busy = new_session(store), new_session(store)
        run(store, idle, "question", "answer")
        proof = say(store, start(store, busy), ToolCall("c1", "search"))
        return Place(
            proof=proof,
            waiting=enqueue(store, busy).id,
            busy=busy,
            idle=idle,
            question=said_in(store, idle)[0].id,
        )

    # --- input of a person ------------------------------------------------------------------------------------------

    @all_of("said", BAD_CONTENT | EMPTY)
    def test_an_input_that_cannot_be_decoded_again_is_rejected(self, store: Store, place: Place, said: Bad) -> None:
        refuse(store, place, InvalidPayload, SENDING, said)

    @all_of("said", TOO_LARGE)
    def test_an_input_that_is_too_large_is_refused(self, store: Store, place: Place, said: Bad) -> None:
        refuse(store, place, TooLarge, SENDING, said)

    # --- output of an agent -----------------------------------------------------------------------------------------

    @all_of("body", BAD_BODIES)
    def test_a_body_that_cannot_be_decoded_again_is_rejected(self, store: Store, place: Place, body: Bad) -> None:
        refuse(store, place, InvalidPayload, SAYING, body)

        assert store.finish(place.proof, Completed(), bodies=[Text("well")]).turn.outcome == Completed()

    @pytest.mark.parametrize(
        "body",
        [
            Text("x" * (MIB + 1)),
            Thought("茶" * (MIB // 3 + 1)),
            Custom("json", "x" * (MIB + 1)),
            ToolResult("c1", "x" * (MIB + 1)),
            ToolCall("c9", "search", "x" * (MIB + 1)),
            ToolCall("c" * 100_000, "search"),
            ToolCall("c9", "s" * 100_000),
        ],
        ids=["text", "thought", "custom", "result", "call", "a call's id", "a call's name"],
    )
    def test_a_body_that_is_too_large_is_refused(self, store: Store, place: Place, body: Bad) -> None:
        refuse(store, place, TooLarge, SAYING, body)

    @pytest.mark.parametrize("bodies", ["hello", None, 5, Text("hello")])
    def test_invalid_lists_of_bodies_are_rejected(self, store: Store, place: Place, bodies: Bad) -> None:
        with refused(store, place.busy, InvalidPayload, place.proof.id):
            store.checkpoint(place.proof, bodies)
        with refused(store, place.busy, InvalidPayload, place.proof.id):
            store.finish(place.proof, Completed(), bodies=bodies)

    @pytest.mark.parametrize(
        "outcome",
        ["completed", None, 5, Completed, Failed(5), Failed("", 5), Failed("\ud800"), Text("done")],  # type: ignore[arg-type]
    )
    def test_an_invalid_outcome_is_rejected(self, store: Store, place: Place, outcome: Bad) -> None:
        with refused(store, place.busy, InvalidPayload, place.proof.id):
            store.finish(place.proof, outcome)

    # --- recorded messages ------------------------------------------------------------------------------------------

    @all_of("said", BAD_MESSAGES)
    def test_messages_that_cannot_be_decoded_again_are_rejected(self, store: Store, place: Place, said: Bad) -> None:
        refuse(store, place, InvalidPayload, RECORDING, said)

        store.finish(place.proof, Completed())

    @all_of("said", TOO_LARGE)
    def test_a_message_that_is_too_large_is_refused(self, store: Store, place: Place, said: Bad) -> None:
        refuse(store, place, TooLarge, RECORDING, [message.user("hello"), message.assistant(said)])

    # --- limits -----------------------------------------------------------------------------------------------------

    def test_limits_are_the_handles_own(self, open_another: OpenAnother) -> None:
        store = open_another(
            limits=Limits(
                message_bytes=200, json_depth=4, title_bytes=10, tag_bytes=4, tags=2, draft_bytes=10, name_bytes=8
            )
        )
        session = new_session(store)
        store.submit(session, "x" * 150, owner=ME, agent="a" * 8, request_id="r" * 8)
        store.submit(session, Custom("json", nested(4)), owner=ME)
        store.rename(session, "t" * 10, owner=ME)
        store.tag(session, owner=ME, add=["home", "work"])
        store.save_draft(session, "d" * 10, owner=ME)

        with refused(store, session, TooLarge):
            store.submit(session, "x" * 201, owner=ME)
        with refused(store, session, InvalidPayload):
            store.submit(session, Custom("json", nested(5)), owner=ME)
        with refused(store, session, TooLarge):
            store.rename(session, "t" * 11, owner=ME)
        with refused(store, session, TooLarge):
            store.tag(session, owner=ME, add=["heath"])
        with refused(store, session, TooLarge):
            store.tag(session, owner=ME, add=["sea"])
        with refused(store, session, TooLarge):
            store.save_draft(session, "d" * 11, owner=ME)
        with refused(store, session, TooLarge):
            store.submit(session, "hello", owner=ME, agent="a" * 9)
        with refused(store, session, TooLarge):
            store.submit(session, "hello", owner=ME, request_id="r" * 9)
        with refused(store, session, TooLarge):
            store.create(owner="o" * 9)

    def test_a_tag_may_make_room_for_another(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(tags=2))
        session = new_session(store)
        store.tag(session, owner=ME, add=["home", "work"])

        assert store.tag(session, owner=ME, add=["sea"], remove=["home"]).tags == ("sea", "work")

    def test_a_message_of_almost_a_mebibyte_is_kept(self, store: Store) -> None:
        text = "茶" * ((MIB - 100) // 3)

        finished = run(store, room(), text, text)

        assert [each.text for each in said_in(store, finished.turn.session)] == [text, text]

    # --- names ------------------------------------------------------------------------------------------------------

    @all_of("name", BAD_NAMES)
    def test_a_name_that_cannot_be_decoded_again_is_rejected(self, store: Store, place: Place, name: Bad) -> None:
        refuse(store, place, InvalidPayload, NAMING, name)

    @pytest.mark.parametrize("name", ["", "  "])
    def test_a_name_that_is_empty_is_refused(self, store: Store, place: Place, name: str) -> None:
        refuse(store, place, InvalidPayload, but(NAMING, "rename", "save_draft"), name)

    def test_a_name_that_is_too_long_is_refused(self, store: Store, place: Place) -> None:
        refuse(store, place, TooLarge, but(NAMING, "save_draft"), "n" * 5_000)

    @pytest.mark.parametrize("owner", ["", " ", None, 5, b"me", ["me"], object(), "\ud800", "me\0", "o" * 100_000])
    def test_an_invalid_owner_is_rejected(self, store: Store, sessions: BusyAndIdle, owner: Bad) -> None:
        assert accepted(store, sessions.busy, owner, (NotFound, InvalidPayload, TooLarge)) == {}

    @pytest.mark.parametrize("field", ["tag", "family", "place", "agent"])
    def test_a_filter_asks_for_texts_that_can_be_stored(self, store: Store, field: str) -> None:
        texts: list[Bad] = ["a\0b", "\ud800", 5, b"a", ["a"]]
        for text in texts:
            wanted = SessionFilter(**{field: text})
            with pytest.raises(InvalidPayload):
                store.list(owner=ME, filter=wanted)
            with pytest.raises(InvalidPayload):
                store.search("fox", owner=ME, filter=wanted)

    @pytest.mark.parametrize("names", ["home", None, 5])
    def test_a_single_name_is_rejected_as_a_list_of_names(self, store: Store, place: Place, names: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.tag(place.idle, owner=ME, add=names)
        with refused(store, place.idle, InvalidPayload):
            store.tag(place.idle, owner=ME, remove=names)
        with refused(store, place.busy, InvalidPayload):
            store.claim(names)
        with refused(store, place.busy, InvalidPayload, place.waiting):
            store.finish(place.proof, Completed(), agents=names)

    # --- other arguments --------------------------------------------------------------------------------------------

    @all_of("live", LIVING)
    @all_of("ttl", BAD_TTLS)
    def test_a_time_to_live_is_a_positive_number_of_seconds(
        self, store: Store, place: Place, live: Callable[[Store, Bad], object], ttl: Bad
    ) -> None:
        with refused(store, place.idle, InvalidPayload):
            live(store, ttl)

        assert store.resolve(room(), owner=ME).how == "created"

    def test_a_bad_time_to_live_does_not_replace_a_good_one(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=60)).session.id

        with refused(store, session, InvalidPayload):
            store.resolve(room(), owner=ME, ttl=Ttl(idle=-1))

    @pytest.mark.parametrize("mode", ["nonsense", "", None, 5, ["enqueue"]])
    def test_an_invalid_if_busy_is_rejected(self, store: Store, place: Place, mode: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.submit(place.idle, "hello", owner=ME, if_busy=mode)
        with refused(store, place.busy, InvalidPayload):
            store.submit(place.busy, "hello", owner=ME, if_busy=mode)

    @pytest.mark.parametrize("revision", ["1", 1.5, -1, 2**70, [1]])
    def test_an_invalid_revision_matches_nothing(self, store: Store, place: Place, revision: Bad) -> None:
        with refused(store, place.idle, (RevisionMismatch, InvalidPayload)):
            store.submit(place.idle, "hello", owner=ME, expect_revision=revision)
        with refused(store, place.idle, (RevisionMismatch, InvalidPayload)):
            store.undo(place.idle, owner=ME, expect_revision=revision)

    @pytest.mark.parametrize("by", ["robot", "", None, 5])
    def test_only_people_and_agents_give_titles(self, store: Store, place: Place, by: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.rename(place.idle, "Dinner", owner=ME, by=by)

    @pytest.mark.parametrize("perhaps", ["yes", None, 2, []])
    def test_a_session_is_pinned_or_not(self, store: Store, place: Place, perhaps: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.pin(place.idle, perhaps, owner=ME)
        with refused(store, place.idle, InvalidPayload):
            store.archive(place.idle, perhaps, owner=ME)

    @pytest.mark.parametrize("number", ["1", 1.5, None, NAN, 2**70, -1])
    def test_a_read_mark_is_the_number_of_an_event(self, store: Store, place: Place, number: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.mark_read(place.idle, number, owner=ME)

    @pytest.mark.parametrize("call", ["", None, 5, b"c1", "\ud800", "c" * 100_000])
    def test_an_invalid_call_id_cannot_be_decided(self, store: Store, place: Place, call: Bad) -> None:
        with refused(store, place.busy, (NothingToDo, InvalidPayload), place.proof.id):
            store.approve(place.proof.id, call, owner=ME)
        with refused(store, place.busy, (NothingToDo, InvalidPayload), place.proof.id):
            store.deny(place.proof.id, call, owner=ME)

    @pytest.mark.parametrize("shown", ["", 5, b"", "\ud800", "0" * 100_000])
    def test_an_invalid_arguments_hash_approves_nothing(self, store: Store, place: Place, shown: Bad) -> None:
        proof = say(store, place.proof, ToolCall("c2", "mail", approval=True))

        with refused(store, place.busy, (Conflict, InvalidPayload), proof.id):
            store.approve(proof.id, "c2", owner=ME, arguments_hash=shown)

    @pytest.mark.parametrize("address", [room().spelling, None, 5, ("chat", "matrix")])
    def test_an_address_is_an_address(self, store: Store, place: Place, address: Bad) -> None:
        with refused(store, place.idle, InvalidPayload):
            store.resolve(address, owner=ME)
        with refused(store, place.idle, InvalidPayload):
            store.point(address, place.idle, owner=ME)
        with refused(store, place.idle, (NotFound, InvalidPayload)):
            store.submit(address, "hello", owner=ME)
        with refused(store, place.idle, (NotFound, InvalidPayload)):
            store.record(address, [message.user("hello")], owner=ME)
