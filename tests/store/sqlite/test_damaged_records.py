"""Damage: an unreadable record raises an error with its key; nothing is skipped or repaired."""

from collections.abc import Callable

import pytest

from backstay import Address, Store, open_store
from backstay.errors import CorruptRecord
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.message import NewMessage
from tests.cli.operator.database_damage import execute
from tests.databases import Place

ME = "me"
HELLO: list[NewMessage] = [message.user("hello"), message.assistant("hi")]
KITCHEN = Address.chat("matrix", "group", chat="kitchen")
PORCH = Address.chat("matrix", "group", chat="porch")

Verb = Callable[[Store, SessionId], object]
READS: dict[str, Verb] = {
    "look": lambda store, session: store.session(session, owner=ME),
    "list": lambda store, session: store.list(owner=ME),
    "resolve": lambda store, session: store.resolve(KITCHEN, owner=ME),
    "export": lambda store, session: store.export(session, owner=ME),
    "submit": lambda store, session: store.submit(session, "are you well?", owner=ME),
    "record": lambda store, session: store.record(session, HELLO, owner=ME),
}


def test_an_address_that_is_stored_with_other_parts_leads_nowhere(place: Place) -> None:
    with open_store(place) as store:
        session = store.resolve(KITCHEN, owner=ME).session
    execute(place, f"UPDATE addresses SET spelling = '{PORCH.spelling}'")

    with open_store(place) as store:
        with pytest.raises(CorruptRecord, match=KITCHEN.key):
            store.resolve(KITCHEN, owner=ME)
        with pytest.raises(CorruptRecord, match=KITCHEN.key):
            store.submit(KITCHEN, "hello", owner=ME)

        assert store.session(session.id, owner=ME) == session
        assert len(store.list(owner=ME).sessions) == 1


@pytest.mark.parametrize("verb", READS.values(), ids=READS)
@pytest.mark.parametrize("column", ["tags", "metadata"])
def test_a_session_that_cannot_be_read_is_named_and_left_as_it_is(place: Place, column: str, verb: Verb) -> None:
    with open_store(place) as store:
        session = store.record(KITCHEN, HELLO, owner=ME).session
    execute(place, f"UPDATE sessions SET {column} = '[1'")

    with open_store(place) as store:
        with pytest.raises(CorruptRecord, match=session.id):
            verb(store, session.id)

        assert store.revision(session.id, owner=ME) == session.revision
        assert [each.text for each in store.messages(session.id, owner=ME).messages] == ["hello", "hi"]


def test_a_waiting_input_that_cannot_be_read_is_not_answered(place: Place) -> None:
    with open_store(place) as store:
        waiting = store.submit(KITCHEN, "hello", owner=ME).turn
    execute(place, "UPDATE turns SET format = 99")

    with open_store(place) as store:
        for _ in range(2):
            with pytest.raises(CorruptRecord, match=waiting.id):
                store.claim(["default"])
        assert store.session(waiting.session, owner=ME).waiting == 1
