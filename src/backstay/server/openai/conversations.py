"""Conversations: sessions under the names of this wire, and the items that are in them."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from backstay.errors import InvalidPayload, NotFound, Rejected, RequestMismatch
from backstay.model.address import Address
from backstay.model.ids import SessionId
from backstay.model.message import Message, NewMessage
from backstay.model.session import Filing, Session
from backstay.runtime.owned import Owned
from backstay.server.call import Answer, AnyCall, Call, Nothing
from backstay.server.openai.faults import BadParameter
from backstay.server.openai.items import Item, items_of
from backstay.server.openai.names import Spot, conversation_name, session_named
from backstay.server.openai.paging import ItemQuery, ListQuery, Page, Shelf, page_of
from backstay.server.openai.reading import messages_from, with_results_kept
from backstay.server.openai.stories import recorded_in
from backstay.server.operation import AnyOperation, Operation
from backstay.store.port import Store

Metadata = dict[str, str]
# Any: an item is whatever JSON its type says.
Items = Annotated[list[dict[str, Any]], Meta(max_length=20)]

PLATFORM = "openai"


class NewConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What it begins with."""

    items: Items | None = None
    metadata: Metadata | None = None


class NewMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What replaces the metadata that it had."""

    metadata: Metadata | None


class NewItems(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is added."""

    items: Items


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: Metadata


class DeletedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of it."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


def check_metadata(metadata: Metadata | None) -> Metadata:
    """The metadata as this wire limits it."""
    metadata = metadata or {}
    if len(metadata) > 16 or any(len(name) > 64 or len(value) > 512 for name, value in metadata.items()):
        raise BadParameter(
            "metadata", "metadata is too large", hint="Send up to 16 texts of 512 characters, named by up to 64."
        )
    return metadata


async def create(call: Call[NewConversation, Nothing]) -> Answer:
    """A new session, with what it begins with. Under one key it is made once."""
    metadata = check_metadata(call.body.metadata)
    said = messages_from(call.body.items or [], param="items")
    key, owned = call.request_id, call.owned
    session = await (owned.write(Store.create, metadata=metadata) if key is None else _once(owned, key, metadata))
    try:
        if said:
            await _add(owned, session.id, said, key)
    except Rejected:
        if key is None:
            await owned.write(Store.delete, session.id)
        raise
    return Answer(value=_shown(session))


async def _once(owned: Owned, key: str, metadata: Metadata) -> Session:
    """The session of this key, as it is by now; one whose making was cut off is completed."""
    session = (await owned.write(Store.resolve, Address.chat(PLATFORM, "conversation", chat=key))).session
    if session.metadata or session.length:
        return session
    return await owned.write(Store.file, session.id, Filing(metadata=metadata))


async def read(call: Call[Nothing, Nothing]) -> Answer:
    """A session."""
    return Answer(value=_shown(await call.owned.read(Store.session, _session(call))))


async def update(call: Call[NewMetadata, Nothing]) -> Answer:
    """Other metadata."""
    filing = Filing(metadata=check_metadata(call.body.metadata))
    return Answer(value=_shown(await call.owned.write(Store.file, _session(call), filing)))


async def delete(call: Call[Nothing, Nothing]) -> Answer:
    """Remove the session and what was said in it."""
    session = _session(call)
    await call.owned.write(Store.delete, session)
    return Answer(value=DeletedConversation(id=conversation_name(session)))


async def list_items(call: Call[Nothing, ListQuery]) -> Answer:
    """A page of what the session reads."""
    session = _session(call)
    await call.owned.read(Store.session, session)
    return Answer(value=await Shelf(call.owned, session).page(call.query))


async def create_items(call: Call[NewItems, ItemQuery]) -> Answer:
    """Add finished items."""
    said = messages_from(call.body.items, param="items")
    session, owned = _session(call), call.owned
    if not said:
        await owned.read(Store.session, session)
        return Answer(value=page_of([], 0))
    items = await _add(owned, session, said, call.request_id)
    values = [item.value for item in items]
    return Answer(value=page_of(values, len(values)))


async def read_item(call: Call[Nothing, ItemQuery]) -> Answer:
    """One item."""
    session = _session(call)
    return Answer(value=(await Shelf(call.owned, session).find(call.named("item"))).value)


async def delete_item(call: Call[Nothing, Nothing]) -> Answer:
    """Leave an item out of what the session reads; a call that the server made, with its result."""
    session, owned = _session(call), call.owned
    item = await Shelf(owned, session).find(call.named("item"))
    if item.result is not None:
        await _omit(owned, session, item.result, 1)
    await _omit(owned, session, item.spot, item.parts)
    return Answer(value=_shown(await owned.read(Store.session, session)))


async def _omit(owned: Owned, session: SessionId, spot: Spot, parts: int) -> None:
    message = await _message_at(owned, session, spot)
    gone = range(spot.part, spot.part + parts)
    keep = [index for index in range(len(message.parts)) if index not in gone]
    await owned.write(Store.omit, session, spot.message, keep=keep)


async def _message_at(owned: Owned, session: SessionId, spot: Spot) -> Message:
    position = await owned.read(Store.place, session, spot.message)
    page = await owned.read(Store.messages, session, before=position + 1, last=1)
    return page.messages[0]


async def _add(owned: Owned, session: SessionId, said: Sequence[NewMessage], key: str | None) -> list[Item]:
    """Record messages; the items they are now. Results whose calls are not there any more are only kept."""
    try:
        recorded = await owned.session(session).record(said, request_id=key)
    except (InvalidPayload, RequestMismatch):
        kept = with_results_kept(said)
        if kept == [*said]:
            raise
        recorded = await owned.session(session).record(kept, request_id=key)
    # What waits behind a running turn has no names yet: they will be seen in the list.
    return items_of(await recorded_in(owned, recorded.turn))


def _session(call: AnyCall) -> SessionId:
    name = call.named("conversation")
    try:
        return session_named(name)
    except NotFound as error:
        raise NotFound(f"there is no conversation {name[:64]!r}", hint="Create one, or list your sessions.") from error


def _shown(session: Session) -> Conversation:
    return Conversation(
        id=conversation_name(session.id), created_at=session.created_at // 1000, metadata=session.metadata
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/conversations",
        name="create_conversation",
        summary="Make a session.",
        run=create,
        body=NewConversation,
        query=Nothing,
        answer=Conversation,
        request_id=True,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}",
        name="read_conversation",
        summary="A session.",
        run=read,
        body=Nothing,
        query=Nothing,
        answer=Conversation,
    ),
    Operation(
        method="POST",
        path="/v1/conversations/{conversation}",
        name="update_conversation",
        summary="Replace a session's metadata.",
        run=update,
        body=NewMetadata,
        query=Nothing,
        answer=Conversation,
    ),
    Operation(
        method="DELETE",
        path="/v1/conversations/{conversation}",
        name="delete_conversation",
        summary="Remove a session and what was said in it.",
        run=delete,
        body=Nothing,
        query=Nothing,
        answer=DeletedConversation,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}/items",
        name="list_items",
        summary="What a session reads, newest first unless asked otherwise.",
        run=list_items,
        body=Nothing,
        query=ListQuery,
        answer=Page,
    ),
    Operation(
        method="POST",
        path="/v1/conversations/{conversation}/items",
        name="create_items",
        summary="Add finished items to a session.",
        run=create_items,
        body=NewItems,
        query=ItemQuery,
        answer=Page,
        request_id=True,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}/items/{item}",
        name="read_item",
        summary="One item of a session.",
        run=read_item,
        body=Nothing,
        query=ItemQuery,
        answer=dict,
    ),
    Operation(
        method="DELETE",
        path="/v1/conversations/{conversation}/items/{item}",
        name="delete_item",
        summary="Leave an item out of what a session reads.",
        run=delete_item,
        body=Nothing,
        query=Nothing,
        answer=Conversation,
    ),
)
