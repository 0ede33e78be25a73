"""A page is written from an exported file message by message: it has what an agent would read."""

from io import BytesIO
from pathlib import Path

import pytest

from backstay import open_store
from backstay.cli.output.conversation_file import ConversationFile
from backstay.testing import ManualClock
from tests.contract.sample_histories import HISTORIES

ME = "me"


@pytest.mark.parametrize("history", HISTORIES)
def test_the_messages_of_an_exported_file_are_those_of_the_current_window(tmp_path: Path, history: str) -> None:
    clock, lines = ManualClock(), BytesIO()
    with open_store(tmp_path / "store.db", clock=clock) as store:
        session = HISTORIES[history](store, clock)
        store.export_to(session, lines, owner=ME)
        whole = store.export(session, owner=ME)

    found = ConversationFile(lines)

    assert (found.header.session, found.header.addresses) == (whole.session, whole.addresses)
    assert tuple(found.messages()) == whole.conversation()
