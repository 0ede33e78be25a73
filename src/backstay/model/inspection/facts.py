"""What a document says of the session itself."""

from collections import Counter

from backstay.model.address import Address
from backstay.model.codec import check_metadata, check_name, check_text
from backstay.model.export import Export
from backstay.model.ids import check_message_id, check_session_id, check_turn_id, check_window_id
from backstay.model.inspection.complaint import at, require
from backstay.model.limits import Limits
from backstay.model.session import PREVIEW


def check_facts(export: Export, limits: Limits) -> None:
    """Raise unless every id names one thing, and the session could be like this."""
    _check_ids(export)
    _check_texts(export, limits)
    _check_state(export)
    _check_addresses(export)


def _check_ids(export: Export) -> None:
    """Every id looks like one and names one thing."""
    for place, check, ids in (
        ("$.ancestors", check_session_id, [export.session.id, *export.ancestors]),
        ("$.windows", check_window_id, [window.id for window in export.windows]),
        ("$.windows", check_message_id, [said.id for window in export.windows for said in window.messages]),
        ("$.turns", check_turn_id, [turn.id for turn in export.turns]),
    ):
        with at(place):
            for name in ids:
                check(name)
        twice = next((name for name, times in Counter(ids).items() if times > 1), None)
        require(twice is None, place, f"names {twice} twice")


def _check_texts(export: Export, limits: Limits) -> None:
    facts = export.session
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
        check_text("the draft", export.marks.draft, limits.draft_bytes)
    require(len(facts.tags) <= limits.tags, "$.session.tags", f"are more than {limits.tags}")
    require(list(facts.tags) == sorted(set(facts.tags)), "$.session.tags", "are not sorted, or not distinct")
    require((facts.title is None) == (facts.title_by is None), "$.session.title_by", "does not fit the title")
    require(len(facts.preview or "") <= PREVIEW, "$.session.preview", "is too long")


def _check_state(export: Export) -> None:
    facts = export.session
    require((facts.state == "open") == (facts.ended_at is None), "$.session.ended_at", "does not fit the state")
    require(facts.revision >= 1, "$.session.revision", "is none")
    require(facts.idle_ttl != 0, "$.session.idle_ttl", "is no time")
    require(0 <= export.marks.read_to <= facts.last_event, "$.marks.read_to", "is no event")
    own = [window.id for window in export.windows if window.session == facts.id]
    require(facts.window in own, "$.session.window", "is no window of the session")


def _check_addresses(export: Export) -> None:
    addresses = export.addresses
    for index, address in enumerate(addresses):
        with at(f"$.addresses[{index}]"):
            Address.parse(address.spelling)
        require(address.generation >= 1, f"$.addresses[{index}].generation", "is none")
    require(len({address.spelling for address in addresses}) == len(addresses), "$.addresses", "are not distinct")
