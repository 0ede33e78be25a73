"""Checks the data of the session itself."""

from backstay.model.addresses.address import Address
from backstay.model.codec import check_metadata, check_name, check_text
from backstay.model.documents.inspection.inspected import Document
from backstay.model.documents.inspection.requirements import at, require
from backstay.model.documents.records import Header
from backstay.model.ids import check_session_id, check_turn_id, check_window_id
from backstay.model.limits import Limits
from backstay.model.session import PREVIEW


def check_facts(document: Document, limits: Limits) -> None:
    """Raise unless all ids are valid and the session could be in this state."""
    _check_ids(document)
    _check_texts(document.header, limits)
    _check_state(document)
    _check_addresses(document.header)


def _check_ids(document: Document) -> None:
    """Check the form of all ids, except those of messages, which are checked with their windows."""
    header = document.header
    sessions = [header.session.id, *header.ancestors]
    with at("$.ancestors"):
        for session in sessions:
            check_session_id(session)
    twice = next((one for index, one in enumerate(sessions) if one in sessions[:index]), None)
    require(twice is None, "$.ancestors", f"names {twice} twice")
    for location, window in document.windows:
        with at(location):
            check_window_id(window.id)
    for location, turn in document.turns():
        with at(location):
            check_turn_id(turn.id)


def _check_texts(header: Header, limits: Limits) -> None:
    facts = header.session
    with at("$.session"):
        if facts.title is not None:
            check_name("the title", facts.title, limits.title_bytes)
        for tag in facts.tags:
            check_name("a tag", tag, limits.tag_bytes)
        check_metadata(facts.metadata, limits)
        if facts.agent is not None:
            check_name("the agent", facts.agent, limits.name_bytes)
        if facts.place is not None:
            check_text("the place", facts.place, limits.message_bytes)
    with at("$.marks"):
        check_text("the draft", header.marks.draft, limits.draft_bytes)
    require(len(facts.tags) <= limits.tags, "$.session.tags", f"are more than {limits.tags}")
    require(list(facts.tags) == sorted(set(facts.tags)), "$.session.tags", "are not sorted, or not distinct")
    require((facts.title is None) == (facts.title_by is None), "$.session.title_by", "does not match the title")
    require(len(facts.preview or "") <= PREVIEW, "$.session.preview", "is too long")


def _check_state(document: Document) -> None:
    facts = document.header.session
    require((facts.state == "open") == (facts.ended_at is None), "$.session.ended_at", "does not match the state")
    require(facts.revision >= 1, "$.session.revision", "must be 1 or more")
    require(facts.idle_ttl != 0, "$.session.idle_ttl", "must not be 0")
    require(0 <= document.header.marks.read_to <= facts.last_event, "$.marks.read_to", "is not an event of the session")
    own = [window.id for _, window in document.windows if window.session == facts.id]
    require(facts.window in own, "$.session.window", "is not a window of the session")


def _check_addresses(header: Header) -> None:
    addresses = header.addresses
    for index, address in enumerate(addresses):
        with at(f"$.addresses[{index}]"):
            Address.parse(address.spelling)
        require(address.generation >= 1, f"$.addresses[{index}].generation", "must be 1 or more")
    require(len({address.spelling for address in addresses}) == len(addresses), "$.addresses", "are not distinct")
