"""A store with rows in every table, and everything that its API returns about them."""

from hashlib import sha256
from typing import NamedTuple

from backstay import Address, Attachment, NewMessage, Store, Text, ToolCall, ToolResult, Ttl
from backstay.model import message as m
from backstay.model.event import FeedEvent
from backstay.model.gateways.arrival import Arrival, GatheredArrival
from backstay.model.gateways.delivery import Delivery, Receipt
from backstay.model.gateways.gateway import GatewayInfo, GatewayPerson
from backstay.model.gateways.notice import ChatSettings, ChooseBusy, NewButton, NewNotice, Notice, NoticeText
from backstay.model.gateways.push_subscription import PushChoice, PushSubscription
from backstay.model.ids import SessionId, TurnId, UploadId
from backstay.model.schedules.schedule import Schedule, ScheduleEntry
from backstay.model.search.results import SearchHit
from backstay.model.session import SessionPatch
from backstay.model.token import Token
from backstay.model.turn import Completed
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notice_commands, pairing_commands, push_commands
from tests.contract.builders import ME, STRANGER, Seen, look, run, start

CHAT = Address.chat("matrix", "group", chat="kitchen")
DESK = Address.workspace("/srv/repo", scope="run-7", agent="reviewer")
PHOTO = b"\x00a photograph of a cat\xff" * 3_000
HASTY = "hasty"
DEVICE = "https://push.example.org/device"


class FullStore(NamedTuple):
    """Values that a caller still holds after the store has moved."""

    chat: SessionId
    supervisor: SessionId
    fork: SessionId
    gone: SessionId
    asked: TurnId
    called: TurnId
    upload: UploadId
    photo: str


def fill_store(store: Store, turns: int = 0, cuts: int = 2) -> FullStore:
    """Fork, tombstone, compaction, tools, queue, blobs, drafts, folds; so many plain turns, and so many undone."""
    chat = store.resolve(CHAT, owner=ME, ttl=Ttl(idle=86_400)).session.id
    asked = store.submit(CHAT, "is anybody here?", owner=ME, request_id="first", start=True)
    assert asked.opened is not None
    store.finish(asked.opened, Completed(), bodies=[Text("a harbour, "), Text("and ships")])
    photo = _attach(store, chat)
    opened = store.checkpoint(start(store, chat, "look"), [Text("hm"), ToolCall("c1", "look", {"in": "fridge"})]).open
    called = store.finish(store.checkpoint(opened, [ToolResult("c1", ["milk"])]).open, Completed()).turn.id
    for number in range(cuts):
        run(store, chat, f"question {number}", f"answer {number}")
        store.undo(chat, owner=ME)
    fork = store.fork(chat, owner=ME).id
    here = store.session(chat, owner=ME)
    store.rotate(chat, [m.summary("there is milk")], owner=ME, parent=here.window, keep_from=here.length - 1)
    source = store.create(owner=ME).id
    run(store, source, "to be kept", "by a fork")
    store.fork(source, owner=ME)
    store.delete(source, owner=ME)
    supervisor = store.resolve(DESK, owner=ME).session.id
    for number in range(turns):
        store.record(supervisor, [m.user(f"plain question {number}"), m.assistant(f"plain answer {number}")], owner=ME)
    store.fold(older_than=-1)
    busy = start(store, supervisor, "wait")
    store.submit(DESK, "next, please", owner=ME, agent=HASTY, request_id="next")
    store.finish(busy, Completed(), bodies=[Text("done")])
    store.save_draft(supervisor, "half a thou", owner=ME)
    store.mark_read(supervisor, 2, owner=ME)
    store.rename(fork, "the other way", owner=ME)
    store.update(fork, SessionPatch(metadata={"topic": "fridges"}), owner=ME)
    store.forget(called, owner=ME)
    store.add_token(owner=ME, name="a key", hash=sha256(b"a secret").digest())
    store.run_schedule(store.create_schedule("month 1 9:00", store.create(owner=ME).id, "rent?", owner=ME).id, owner=ME)
    store.record(store.create(owner=STRANGER).id, [m.user("a harbour of mine")], owner=STRANGER)
    _deliver(store, store.create(owner=ME).id)
    _subscribe(store, chat)
    return FullStore(chat, supervisor, fork, source, asked.turn.id, called, _upload(store, PHOTO[:100]), photo)


def _deliver(store: Store, session: SessionId) -> None:
    """A gateway that has received a message, and was sending an answer."""
    gateway = store.run(gateway_commands.open_gateway("telegram/7", owner=ME))
    assert gateway is not None
    arrival = Arrival(id="42/1", to=session, destination="42", parts=(Text("hello"),), gathering="42", gathers=True)
    store.run(gateway_commands.receive(gateway, arrival, cursor="8"))
    (delivery,) = store.run(gateway_commands.deliveries_of(session, owner=ME))
    store.run(gateway_commands.begin_part(gateway, delivery.id, 1, 0, low=0, high=5))
    store.run(pairing_commands.give_code(gateway, "42", "Ann", "CODE"))
    store.run(pairing_commands.confirm_code("telegram/7", "CODE", owner=ME))
    chosen = ChatSettings(if_busy="steer")
    store.run(notice_commands.choose_settings(gateway, "42", chosen))
    rows = ((NewButton("queue", ChooseBusy("enqueue", "queued")),),)
    content = NoticeText("Which?", rows)
    store.run(
        notice_commands.add_notice(
            gateway, NewNotice(name="list", destination="42", kind="reply", content=content, final=False)
        )
    )
    store.run(gateway_commands.close_gateway(gateway))


def _subscribe(store: Store, session: SessionId) -> None:
    """A device that is told when a person is needed in this session."""
    store.run(push_commands.keep_push_key("a private key"))
    store.run(push_commands.subscribe_push(DEVICE, owner=ME, public_key="key", secret="secret", name="phone"))
    store.run(push_commands.choose_push(session, PushChoice(done=False), owner=ME))


def _attach(store: Store, session: SessionId) -> str:
    blob = store.finish_upload(_upload(store, PHOTO), owner=ME)
    photo = Attachment(blob.hash, "cat.png", "image/png", blob.size)
    store.record(session, [NewMessage(role="user", parts=(Text("see"), photo))], owner=ME)
    return blob.hash


def _upload(store: Store, data: bytes) -> UploadId:
    upload = store.begin_upload(owner=ME)
    for at in range(0, len(data), 10_000):
        store.upload_chunk(upload, at, data[at : at + 10_000], owner=ME)
    return upload


class StoreContents(NamedTuple):
    """Everything that a store shows of all owners."""

    seen: tuple[Seen, ...]
    feed: tuple[FeedEvent, ...]
    found: tuple[SearchHit, ...]
    exports: tuple[bytes, ...]
    tokens: tuple[Token, ...]
    schedules: tuple[tuple[Schedule, tuple[ScheduleEntry, ...]], ...]
    end: int
    gateways: tuple[GatewayInfo, ...]
    people: tuple[GatewayPerson, ...]
    gathered: tuple[GatheredArrival, ...]
    deliveries: tuple[tuple[Delivery, tuple[Receipt, ...]], ...]
    notices: tuple[Notice, ...]
    chat: ChatSettings
    devices: tuple[PushSubscription, ...]
    push_choices: tuple[PushChoice, ...]


def contents_of(store: Store) -> StoreContents:
    """All events, as their owners may read them."""
    seen, feed, found, exports, end = [], [], [], [], 0
    for owner in (ME, STRANGER):
        for session in store.list(owner=owner, limit=1000).sessions:
            first = look(store, session.id, owner=owner)
            turns = sorted({event.turn for event in first.events if event.turn is not None})
            seen.append(look(store, session.id, turns, owner=owner))
            exports.append(store.export(session.id, owner=owner).to_json())
        feed += _feed(store, owner)
        store.index()
        # Engines may rank two texts differently.
        found += sorted(store.search("harbour", owner=owner, limit=100).hits, key=lambda hit: hit.message)
        end = store.feed(None, owner=owner).next
    schedules = tuple((one, store.schedule_log(one.id, owner=ME)) for one in store.schedules(owner=ME))
    return StoreContents(
        tuple(seen),
        tuple(feed),
        tuple(found),
        tuple(exports),
        store.tokens(owner=ME),
        schedules,
        end,
        store.run(gateway_commands.gateways(owner=ME)),
        store.run(pairing_commands.gateway_people("telegram/7", owner=ME)),
        store.run(gateway_commands.gathered("telegram/7", owner=ME)),
        _deliveries(store),
        store.run(notice_commands.due_notices("telegram/7", owner=ME)),
        store.run(notice_commands.chat_settings("telegram/7", "42", owner=ME)),
        store.run(push_commands.push_subscriptions(owner=ME)),
        tuple(store.run(push_commands.push_choice(one.id, owner=ME)) for one in store.list(owner=ME).sessions),
    )


def _deliveries(store: Store) -> tuple[tuple[Delivery, tuple[Receipt, ...]], ...]:
    return tuple(
        (delivery, store.run(gateway_commands.receipts(delivery.id, 1, gateway=delivery.gateway, owner=ME)))
        for session in store.list(owner=ME, limit=1000).sessions
        for delivery in store.run(gateway_commands.deliveries_of(session.id, owner=ME))
    )


def _feed(store: Store, owner: str) -> list[FeedEvent]:
    events: list[FeedEvent] = []
    position, more = 0, True
    while more:
        page = store.feed(position, owner=owner)
        events, position, more = [*events, *page.events], page.next, page.more
    return events


def blob(store: Store, hash: str) -> bytes:
    """The bytes of an attachment."""
    return b"".join(store.read_blob(hash, owner=ME, start=at, length=1 << 14) for at in range(0, len(PHOTO), 1 << 14))
