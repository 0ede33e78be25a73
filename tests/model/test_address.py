"""Addresses: equal only if all their parts are, with exactly one spelling each."""

import copy
import hashlib
import os
import pickle
import pwd
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backstay.errors import InvalidAddress
from backstay.model.addresses.address import (
    Address,
    AgentIdentity,
    AgentPart,
    ChatAddress,
    Mode,
    WorkspaceAddress,
    workspace_place,
)
from backstay.model.addresses.spelling import spell_part

NFC, NFD = "caf\u00e9", "cafe\u0301"
NASTY = ":/|\n\r\t %?&=#~+.\\'\"\u00e9e\u0301\u200b\u202e\u6771\U0001f600aA7"

parts = st.text(
    st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=["Cs"], min_codepoint=1)), min_size=1
)
short_parts = st.text(st.sampled_from(":/%=&?a"), min_size=1, max_size=3)
maybe = st.one_of(st.none(), short_parts, parts)
names = st.binary(min_size=1, max_size=12).filter(lambda raw: not {0, 47} & set(raw) and raw not in (b".", b".."))
paths = st.lists(names, max_size=4).map(lambda raw: "/" + b"/".join(raw).decode("utf-8", "surrogateescape"))
agent_parts = st.builds(AgentPart, kind=st.sampled_from(["sub", "instance", "display", "name"]), value=parts)

chats = st.builds(
    ChatAddress,
    platform=short_parts | parts,
    kind=short_parts | parts,
    chat=short_parts | parts,
    thread=maybe,
    user=maybe,
    account=maybe,
    profile=st.just("main") | parts,
)
runs = st.builds(
    WorkspaceAddress, path=paths, mode=st.just("project"), scope=parts, agent=st.none() | agent_parts, host=maybe
)
days = st.builds(
    WorkspaceAddress, path=paths, mode=st.just("sentinel"), scope=st.dates().map(date.isoformat), host=maybe
)
addresses = st.one_of(chats, runs, days)


def a_chat(chat: str = "42", **parts: str) -> ChatAddress:
    return Address.chat("telegram", "dm", chat=chat, **parts)


def a_path(path: str | os.PathLike[str]) -> str:
    return Address.workspace(path, scope="run-1").path


def refused_part(path: Any, **parts: Any) -> str:  # Any: what a caller without a type checker passes
    arguments: dict[str, Any] = {"scope": "run-1", **parts}  # Any: as above
    with pytest.raises(InvalidAddress) as refusal:
        Address.workspace(path, **arguments)
    return refusal.value.part


# One address, one spelling


def test_an_address_reads_like_a_place() -> None:
    bare = Address.chat("telegram", "dm", chat="42")
    full = Address.chat("telegram", "group", chat="42", thread="7", user="77", account="acme", profile="work")
    run = WorkspaceAddress(
        path="/home/me/my repo", mode="project", scope="run-1", agent=AgentPart(kind="instance", value="abc"), host="m1"
    )

    assert str(bare) == "chat://telegram/dm/42"
    assert str(full) == "chat://telegram/group/42?thread=7&user=77&account=acme&profile=work"
    assert str(run) == "workspace:///home/me/my%20repo?mode=project&scope=run-1&agent=instance:abc&host=m1"


def test_letters_of_every_script_stay_readable_and_invisible_ones_are_encoded() -> None:
    assert a_chat("Zo\u00eb-\u6771\u4eac-\U0001f600").spelling == "chat://telegram/dm/Zo\u00eb-\u6771\u4eac-\U0001f600"
    assert a_chat("a\u202eb\u200bc\u00a0d\x1be").spelling == "chat://telegram/dm/a%E2%80%AEb%E2%80%8Bc%C2%A0d%1Be"


@given(addresses)
def test_a_spelling_parses_back_to_the_equal_address(address: Address) -> None:
    parsed = Address.parse(address.spelling)

    assert parsed == address
    assert hash(parsed) == hash(address)
    assert parsed.key == address.key


@given(addresses, addresses)
def test_different_addresses_never_share_a_spelling_or_a_key(one: Address, other: Address) -> None:
    assert (one == other) == (one.spelling == other.spelling) == (one.key == other.key)


@given(st.lists(short_parts, min_size=3, max_size=3), st.lists(short_parts, min_size=3, max_size=3))
def test_parts_cut_at_other_places_are_other_addresses(one: list[str], other: list[str]) -> None:
    assume(one != other)

    assert Address.chat(one[0], one[1], chat=one[2]).key != Address.chat(other[0], other[1], chat=other[2]).key


def test_a_separator_inside_a_part_stays_inside() -> None:
    assert Address.chat("x", "dm", chat="y:z").key != Address.chat("x:dm", "y", chat="z").key
    assert a_chat("x", thread="y:z").key != a_chat("x:y", thread="z").key
    assert a_chat("x/y").key != Address.chat("telegram", "dm/x", chat="y").key
    assert a_chat("x?user=1").key != a_chat("x", user="1").key


def test_a_user_is_not_the_thread_with_the_same_number() -> None:
    one_per_part = {a_chat(user="77").key, a_chat(thread="77").key, a_chat(account="77").key, a_chat(profile="77").key}

    assert len(one_per_part) == 4


def test_spaces_and_invisible_characters_are_always_encoded() -> None:
    hidden = [chr(code) for code in range(0x110000) if chr(code).isspace()]
    hidden += ["\u00ad", "\u200b", "\u200d", "\u200e", "\u202a", "\u2066", "\u3164", "\ufe0f", "\ufeff", "\U000e0041"]

    for character in hidden:
        assert spell_part(character).startswith("%"), f"U+{ord(character):04X}"


def test_which_characters_are_encoded_is_the_same_in_every_python() -> None:
    # A stored spelling must parse for ever; the unicode tables of Python grow every year.
    everything = "".join(chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    spelled = hashlib.sha256(spell_part(everything).encode())

    assert spelled.hexdigest() == "24a11de28172c0d10d046f067b88f891d7a12ef7d93edb9128525efe48e9f531"


def test_the_key_is_the_sha_256_of_the_spelling() -> None:
    assert a_chat().key == hashlib.sha256(b"chat://telegram/dm/42").hexdigest()


def test_the_key_is_the_same_in_every_process(tmp_path: Path) -> None:
    script = """
import sys
from backstay.model.addresses.address import Address, AgentIdentity
print(Address.chat("telegram", "dm", chat="4 2", user="\\u00e9").key)
print(Address.workspace(sys.argv[1], scope="r", agent=AgentIdentity(instance_id="i")).key)
"""
    here = [
        Address.chat("telegram", "dm", chat="4 2", user="\u00e9").key,
        Address.workspace(tmp_path, scope="r", agent=AgentIdentity(instance_id="i")).key,
    ]

    for seed, cwd in (("1", "/"), ("2", str(tmp_path))):
        there = in_a_new_process(script, str(tmp_path), PYTHONHASHSEED=seed, cwd=cwd)
        assert there == here


def test_an_address_survives_copying_and_pickling() -> None:
    address = a_chat(thread="7")

    assert copy.deepcopy(address) == pickle.loads(pickle.dumps(address)) == address


def test_an_address_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        a_chat().platform = "slack"  # type: ignore[misc]  # that it is refused is the point


def test_there_is_no_address_without_a_family() -> None:
    with pytest.raises(TypeError, match=r"Address\.parse"):
        Address()


# Parsing


@given(
    st.one_of(
        st.text(),
        st.text(NASTY + "%2Fchatdm0=").map("chat://".__add__),
        st.text(NASTY + "%2Fchatdm0=").map("workspace:///x?mode=project&scope=".__add__),
    )
)
@example("chat://a/b/c?")
@example("chat://a/b/\ud800")
@example("workspace:///x?mode=project&scope=%00&agent=default")
def test_text_either_is_a_canonical_spelling_or_is_refused(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidAddress:
        return
    assert address.spelling == text


@given(addresses, st.data())
def test_a_damaged_spelling_is_refused_or_is_another_address(address: Address, data: st.DataObject) -> None:
    spelling = address.spelling
    at = data.draw(st.integers(0, len(spelling) - 1))
    damaged = spelling[:at] + data.draw(st.sampled_from(["", *NASTY])) + spelling[at + 1 :]
    assume(damaged != spelling)

    try:
        other = Address.parse(damaged)
    except InvalidAddress:
        return
    assert other.spelling == damaged
    assert other != address


@pytest.mark.parametrize(
    ("spelling", "part"),
    [
        ("", "family"),
        ("telegram/dm/42", "family"),
        ("CHAT://telegram/dm/42", "family"),
        ("chat://telegram/dm", "spelling"),
        ("chat://telegram/dm/4/2", "spelling"),
        ("chat:///dm/42", "platform"),
        ("chat://telegram/dm/42?thread=", "thread"),
        ("chat://telegram/dm/42?colour=red", "spelling"),
        ("chat://telegram/dm/42?user=1&thread=2", "spelling"),
        ("chat://telegram/dm/42?user=1&user=1", "spelling"),
        ("chat://telegram/dm/42?profile=main", "spelling"),
        ("chat://telegram/dm/42?", "spelling"),
        ("chat://telegram/dm/42#top", "spelling"),
        ("chat://telegram/dm/4 2", "spelling"),
        ("chat://telegram/dm/%34%32", "spelling"),
        ("chat://telegram/dm/a%2fb", "spelling"),
        ("chat://telegram/dm/a%ZZ", "spelling"),
        ("chat://telegram/dm/%FF", "chat"),
        ("chat://telegram/dm/%00", "chat"),
        ("chat://telegram/dm/\ud800", "chat"),
        ("workspace://repo?mode=project&scope=r&agent=default", "path"),
        ("workspace://?mode=project&scope=r&agent=default", "path"),
        ("workspace:////a?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a/?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a/../b?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a/./b?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a/%2E%2E/b?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a%00?mode=project&scope=r&agent=default", "path"),
        ("workspace:///a%2Fb?mode=project&scope=r&agent=default", "spelling"),
        ("workspace:///~?mode=project&agent=default", "scope"),
        ("workspace:///a?scope=r&agent=default", "mode"),
        ("workspace:///a?mode=global&scope=r&agent=default", "mode"),
        ("workspace:///a?mode=sentinel&scope=today&agent=default", "scope"),
        ("workspace:///a?mode=project&scope=r", "agent"),
        ("workspace:///a?mode=project&scope=r&agent=bob", "agent"),
        ("workspace:///a?mode=project&scope=r&agent=sub:", "agent"),
    ],
)
def test_only_the_canonical_spelling_is_accepted(spelling: str, part: str) -> None:
    with pytest.raises(InvalidAddress) as refusal:
        Address.parse(spelling)
    assert refusal.value.part == part


def test_a_spelling_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidAddress, match=r"Write chat://telegram/dm/42\)"):
        Address.parse("chat://telegram/dm/42?profile=main")


def test_parsing_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")

    for name in ("link", "loop"):
        spelling = f"workspace://{tmp_path}/{name}?mode=project&scope=r&agent=default"
        assert Address.parse(spelling).place == f"{tmp_path}/{name}"


def test_parsing_opens_nothing() -> None:
    script = """
import sys
from backstay.model.addresses.address import Address
Address.parse("workspace:///warm?mode=sentinel&scope=2026-01-01&agent=default")
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event))
Address.parse("workspace:///etc/~root/caf%C2%AD?mode=project&scope=r&agent=sub:x&host=h").key
touched = [event for event in seen if event == "open" or event.startswith(("os.", "pathlib.", "glob.", "socket."))]
print(len(touched))
"""
    assert in_a_new_process(script) == ["0"]


# Parts


@pytest.mark.parametrize("part", ["platform", "kind", "chat", "thread", "user", "account", "profile"])
@pytest.mark.parametrize("value", ["", "\0", "a\0b", "\ud800", "x" * 1_025, "\u00e9" * 513, 42, b"42", 4.2])
def test_an_invalid_part_is_rejected_by_name(part: str, value: object) -> None:
    parts: dict[str, Any] = {"platform": "telegram", "kind": "dm", "chat": "42", part: value}  # Any: wrong on purpose
    with pytest.raises(InvalidAddress) as refusal:
        Address.chat(parts.pop("platform"), parts.pop("kind"), **parts)
    assert refusal.value.part == part


@pytest.mark.parametrize("part", ["platform", "kind", "chat", "profile"])
def test_a_required_part_cannot_be_none(part: str) -> None:
    parts: dict[str, Any] = {"platform": "telegram", "kind": "dm", "chat": "42", part: None}  # Any: wrong on purpose
    with pytest.raises(InvalidAddress) as refusal:
        ChatAddress(**parts)
    assert refusal.value.part == part


def test_a_number_is_refused_with_the_way_to_pass_it() -> None:
    number: Any = -100  # Any: what a caller without a type checker passes
    with pytest.raises(InvalidAddress, match=r"'chat' is of type int.*str\(-100\)"):
        a_chat(number)


def test_a_part_may_have_1024_bytes() -> None:
    for longest in ("x" * 1_024, "\u00e9" * 512):
        assert Address.parse(a_chat(longest).spelling) == a_chat(longest)


def test_control_characters_are_kept_and_shown_encoded() -> None:
    assert a_chat("a\nb\x7f").spelling == "chat://telegram/dm/a%0Ab%7F"


def test_lists_filter_chats_by_platform_and_workspaces_by_path(tmp_path: Path) -> None:
    workspace = Address.workspace(f"{tmp_path}/my repo/", scope="r")

    assert (a_chat().family, a_chat().place) == ("chat", "telegram")
    assert (workspace.family, workspace.place) == ("workspace", f"{tmp_path}/my repo")
    assert workspace_place(tmp_path / "x" / ".." / "my repo") == workspace.place


@given(paths, paths)
def test_a_place_is_text_and_belongs_to_one_path(one: str, other: str) -> None:
    places = [WorkspaceAddress(path=path, mode="project", scope="r").place for path in (one, other)]

    assert all(place.encode() for place in places)
    assert (places[0] == places[1]) == (one == other)


# Paths


def test_every_way_to_write_a_path_is_one_address(tmp_path: Path) -> None:
    (tmp_path / "repo" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    (tmp_path / "hop").symlink_to("link")
    twins: list[str | Path] = [
        tmp_path / "repo",
        tmp_path / "link",
        tmp_path / "hop",
        f"{tmp_path}/repo/",
        f"{tmp_path}//repo//",
        f"/{tmp_path}/repo",
        f"//{tmp_path}/./repo/.",
        f"{tmp_path}/repo/src/..",
        f"{tmp_path}/missing/../repo",
    ]

    keys = {Address.workspace(twin, scope="run-1").key for twin in twins}

    assert keys == {Address.workspace(f"{tmp_path}/repo", scope="run-1").key}


def test_dot_dot_leaves_the_directory_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "far" / "repo").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/repo")

    assert a_path(f"{tmp_path}/link/../x") == f"{tmp_path}/far/x"


def test_a_path_need_not_exist_and_may_be_the_root(tmp_path: Path) -> None:
    assert a_path(tmp_path / "later" / "repo") == f"{tmp_path}/later/repo"
    assert a_path("//") == "/"
    assert Address.parse(Address.workspace("/", scope="r").spelling).place == "/"


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}/")
    me = pwd.getpwuid(os.getuid())

    assert a_path("~") == a_path("~/") == a_path(tmp_path)
    assert a_path(Path("~/repo")) == f"{tmp_path}/repo"
    assert a_path(f"~{me.pw_name}/repo") == a_path(f"{me.pw_dir}/repo")
    assert a_path(f"{tmp_path}/~") == f"{tmp_path}/~"


@pytest.mark.parametrize("home", ["", "here", "."])
def test_a_home_that_is_not_an_absolute_path_is_rejected(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)

    assert refused_part("~/repo") == "path"
    assert refused_part("~") == "path"


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "repo",
        "./repo",
        "../repo",
        " /repo",
        "~nobody-has-this-name/repo",
        "/a\0b",
        "/a\ud800",
        "/" + "x/" * 2_048,
        "/" + "x" * 300,
        b"/repo",
        Path("repo"),
        None,
        42,
    ],
)
def test_an_ambiguous_path_is_rejected(path: object) -> None:
    assert refused_part(path) == "path"


def test_a_link_that_leads_nowhere_but_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    assert refused_part(tmp_path / "loop") == "path"
    assert refused_part(tmp_path / "loop" / "repo") == "path"


def test_two_unicode_forms_are_two_directories_if_the_disk_has_both(tmp_path: Path) -> None:
    (tmp_path / NFC).mkdir()
    if (tmp_path / NFD).exists():
        pytest.skip("this file system merges unicode forms")
    (tmp_path / NFD).mkdir()

    assert a_path(tmp_path / NFC) == f"{tmp_path}/{NFC}"
    assert a_path(tmp_path / NFD) == f"{tmp_path}/{NFD}"


def test_two_unicode_forms_of_one_inode_are_one_address(tmp_path: Path) -> None:
    (tmp_path / NFD).touch()
    if not (tmp_path / NFC).exists():
        os.link(tmp_path / NFD, tmp_path / NFC)

    assert a_path(tmp_path / NFD) == a_path(tmp_path / NFC) == f"{tmp_path}/{NFC}"
    assert a_path(tmp_path / NFD / "later") == f"{tmp_path}/{NFC}/later"


def test_a_unicode_form_that_is_only_a_link_is_not_the_real_path(tmp_path: Path) -> None:
    (tmp_path / NFD).mkdir()
    if (tmp_path / NFC).exists():
        pytest.skip("this file system merges unicode forms")
    (tmp_path / NFC).symlink_to(NFD)

    assert a_path(tmp_path / NFC) == a_path(tmp_path / NFD) == f"{tmp_path}/{NFD}"


def test_bytes_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    address = Address.workspace(path, scope="r")

    assert address.spelling.startswith(f"workspace://{tmp_path}/caf%E9?")
    assert Address.parse(address.spelling) == address
    assert a_path(address.path) == address.path == path


def test_a_path_that_escapes_valid_utf_8_is_the_path_it_escapes(tmp_path: Path) -> None:
    assert a_path(f"{tmp_path}/caf\udcc3\udca9") == a_path(f"{tmp_path}/{NFC}")
    with pytest.raises(InvalidAddress):
        WorkspaceAddress(path="/caf\udcc3\udca9", mode="project", scope="r")


@given(paths)
def test_a_canonical_path_stays_as_it_is(path: str) -> None:
    once = a_path(f"/nowhere{path}")

    assert once == f"/nowhere{path}".rstrip("/") == a_path(once)


# Scope


def test_the_same_arguments_give_the_same_address_and_another_run_another(tmp_path: Path) -> None:
    assert Address.workspace(tmp_path, scope="run-1") == Address.workspace(tmp_path, scope="run-1")
    assert Address.workspace(tmp_path, scope="run-1").key != Address.workspace(tmp_path, scope="run-2").key


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        (datetime(2026, 3, 1, 0, 0, tzinfo=UTC), "2026-03-01"),
        (datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC), "2026-03-01"),
        (datetime(2026, 3, 1, 1, 59, tzinfo=timezone(timedelta(hours=2))), "2026-02-28"),
        (datetime(2026, 3, 1, 2, 0, tzinfo=timezone(timedelta(hours=2))), "2026-03-01"),
        (datetime(2026, 12, 31, 16, 0, tzinfo=timezone(timedelta(hours=-8))), "2027-01-01"),
        (date(2026, 3, 1), "2026-03-01"),
        ("2028-02-29", "2028-02-29"),
    ],
)
def test_a_sentinel_is_scoped_by_the_day_in_utc(moment: date | str, day: str, tmp_path: Path) -> None:
    assert Address.workspace(tmp_path, mode="sentinel", scope=moment).scope == day


def test_a_day_is_not_the_run_of_the_same_name(tmp_path: Path) -> None:
    run = Address.workspace(tmp_path, scope="2026-03-01")

    assert run.key != Address.workspace(tmp_path, mode="sentinel", scope="2026-03-01").key


@pytest.mark.parametrize(
    ("mode", "scope"),
    [
        ("sentinel", ""),
        ("sentinel", "today"),
        ("sentinel", "20260301"),
        ("sentinel", "2026-3-1"),
        ("sentinel", "2026-02-29"),
        ("sentinel", "2026-W09-7"),
        ("sentinel", " 2026-03-01"),
        ("sentinel", "2026-03-01T00:00:00Z"),
        ("sentinel", "\u0662026-03-01"),
        ("sentinel", datetime(2026, 3, 1, tzinfo=UTC).replace(tzinfo=None)),
        ("sentinel", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
        ("sentinel", None),
        ("sentinel", 1_772_323_200),
        ("project", ""),
        ("project", None),
        ("project", 7),
        ("project", date(2026, 3, 1)),
        ("project", "a\0b"),
    ],
)
def test_a_scope_that_does_not_fit_the_mode_is_refused(mode: Mode, scope: object, tmp_path: Path) -> None:
    assert refused_part(tmp_path, mode=mode, scope=scope) == "scope"


@pytest.mark.parametrize("mode", ["", "global", "PROJECT", None, 1, []])
def test_an_unknown_mode_is_refused(mode: object, tmp_path: Path) -> None:
    assert refused_part(tmp_path, mode=mode) == "mode"


# Agent


def test_the_most_exact_known_identity_names_an_agent(tmp_path: Path) -> None:
    known = [
        AgentIdentity(sub_id="s", instance_id="i", display_name="d", name="n"),
        AgentIdentity(instance_id="i", display_name="d", name="n"),
        AgentIdentity(display_name="d", name="n"),
        AgentIdentity(name="n"),
        AgentIdentity(),
    ]

    spelled = [str(Address.workspace(tmp_path, scope="r", agent=agent)).partition("agent=")[2] for agent in known]

    assert spelled == ["sub:s", "instance:i", "display:d", "name:n", "default"]


def test_weaker_names_of_an_agent_do_not_change_its_address(tmp_path: Path) -> None:
    shy = AgentIdentity(instance_id="i")
    loud = AgentIdentity(instance_id="i", display_name="Renamed", name="n")

    assert Address.workspace(tmp_path, scope="r", agent=shy) == Address.workspace(tmp_path, scope="r", agent=loud)


def test_an_agent_id_is_not_the_display_name_of_the_same_text(tmp_path: Path) -> None:
    agents: list[AgentIdentity | str | None] = [
        AgentIdentity(sub_id="default"),
        AgentIdentity(instance_id="default"),
        AgentIdentity(display_name="default"),
        AgentIdentity(display_name="name:default"),
        "default",
        None,
    ]

    assert len({Address.workspace(tmp_path, scope="r", agent=agent).key for agent in agents}) == len(agents)


def test_a_plain_text_agent_is_its_explicit_name(tmp_path: Path) -> None:
    named = Address.workspace(tmp_path, scope="r", agent=AgentIdentity(name="bob"))

    assert Address.workspace(tmp_path, scope="r", agent="bob") == named


def test_without_an_agent_each_run_still_has_its_own_address(tmp_path: Path) -> None:
    assert Address.workspace(tmp_path, scope="run-1").key != Address.workspace(tmp_path, scope="run-2").key


@pytest.mark.parametrize("field", ["sub_id", "instance_id", "display_name", "name"])
@pytest.mark.parametrize("value", ["", "\0", "\ud800", "x" * 1_025, 7])
def test_an_identity_with_an_impossible_name_is_refused_by_field(field: str, value: object) -> None:
    fields: dict[str, Any] = {"name": "n", field: value}  # Any: wrong on purpose
    with pytest.raises(InvalidAddress) as refusal:
        AgentIdentity(**fields)
    assert refusal.value.part == f"agent.{field}"


@pytest.mark.parametrize("agent", ["", "\0", 7, b"bob"])
def test_an_impossible_agent_is_refused(agent: object, tmp_path: Path) -> None:
    assert refused_part(tmp_path, agent=agent) == "agent"


@pytest.mark.parametrize("kind", ["", "default", "SUB", None, []])
def test_an_agent_part_has_one_of_four_kinds(kind: Any) -> None:  # Any: wrong on purpose
    with pytest.raises(InvalidAddress, match="'agent' has an unknown kind"):
        AgentPart(kind=kind, value="x")


def test_an_address_holds_only_an_agent_part() -> None:
    text: Any = "bob"  # Any: what a caller without a type checker passes
    with pytest.raises(InvalidAddress, match="'agent' is not an AgentPart"):
        WorkspaceAddress(path="/a", mode="project", scope="r", agent=text)


# Host


def test_a_host_is_filled_in_once(tmp_path: Path) -> None:
    nowhere = Address.workspace(tmp_path, scope="r", agent="bob")
    here = nowhere.on("m1")

    assert here == Address.workspace(tmp_path, scope="r", agent="bob", host="m1") == here.on("m2")
    assert here.spelling == f"{nowhere.spelling}&host=m1"
    assert here.key != nowhere.key


def test_a_chat_has_no_host() -> None:
    assert a_chat().on("m1") == a_chat()


def test_an_impossible_host_is_refused(tmp_path: Path) -> None:
    assert refused_part(tmp_path, host="") == "host"
    with pytest.raises(InvalidAddress, match="'host' is empty"):
        Address.workspace(tmp_path, scope="r").on("")


def in_a_new_process(script: str, *arguments: str, cwd: str = "/", **environment: str) -> list[str]:
    """The lines it prints when started from another place, with another hash seed."""
    source = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()
