"""Conversations: sessions and their items in the format of the OpenAI-compatible API."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from backstay.errors import InvalidPayload, NotFound, Rejected, RequestMismatch
from backstay.model.addresses.address import Address
from backstay.model.ids import SessionId
from backstay.model.message import Message, NewMessage
from backstay.model.session import SessionInfo, SessionPatch
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.http.api_request import ApiRequest, ApiResponse, B, NoInput, Q
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.openai.encoding.items import Item, items_of
from backstay.server.openai.encoding.turn_events import recorded_in
from backstay.server.openai.input_items.item_files import store_files
from backstay.server.openai.input_items.item_parser import messages_from, with_raw_results
from backstay.server.openai.input_items.item_references import resolve_references
from backstay.server.openai.openai_errors import BadParameter
from backstay.server.openai.openai_ids import ItemPosition, conversation_name, session_named
from backstay.server.openai.paging import ItemListQuery, ItemPage, ItemQuery, SessionItems, page_of
from backstay.store import commands

Metadata = dict[str, str]
# Any: an item is a JSON object whose type field defines its content.
Items = Annotated[list[dict[str, Any]], Meta(max_length=20)]

PLATFORM = "openai"


class NewConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first items and the metadata of a conversation."""

    items: Items | None = None
    metadata: Metadata | None = None


class NewMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The metadata that replaces the present one."""

    metadata: Metadata | None


class NewItems(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items to add."""

    items: Items


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    """A session as a conversation."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: Metadata


class DeletedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The confirmation of a deletion."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


def check_metadata(metadata: Metadata | None) -> Metadata:
    """Return the metadata, or raise if it exceeds the limits of this API."""
    metadata = metadata or {}
    if len(metadata) > 16 or any(len(name) > 64 or len(value) > 512 for name, value in metadata.items()):
        raise BadParameter(
            "metadata",
            "metadata is too large",
            hint="Send up to 16 values of 512 characters, with keys of up to 64 characters.",
        )
    return metadata


async def create(call: ApiRequest[NewConversation, NoInput]) -> ApiResponse:
    """Create a session with its first items. Requests with the same Idempotency-Key create one session."""
    metadata = check_metadata(call.body.metadata)
    key, owned = call.request_id, call.owned
    items = await resolve_references(owned, call.body.items or [], param="items")
    stored = await store_files(owned, items, param="items", strict=False)
    messages = messages_from(stored, param="items")
    session = await (
        owned.run(commands.create(metadata=metadata, owner=owned.owner)) if key is None else _once(owned, key, metadata)
    )
    try:
        if messages:
            await _add(owned, session.id, messages, key)
    except Rejected:
        if key is None:
            await owned.run(commands.delete(session.id, owner=owned.owner))
        raise
    return ApiResponse(value=_shown(session))


async def _once(owned: OwnerSessions, key: str, metadata: Metadata) -> SessionInfo:
    """The session for this key. If an earlier request stopped halfway, complete it."""
    session = (
        await owned.run(commands.resolve(Address.chat(PLATFORM, "conversation", chat=key), owner=owned.owner))
    ).session
    if session.metadata or session.length:
        return session
    return await owned.run(commands.update(session.id, SessionPatch(metadata=metadata), owner=owned.owner))


async def read(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return a conversation."""
    return ApiResponse(value=_shown(await call.run(commands.session(_session(call), owner=call.owner))))


async def update(call: ApiRequest[NewMetadata, NoInput]) -> ApiResponse:
    """Replace the metadata."""
    patch = SessionPatch(metadata=check_metadata(call.body.metadata))
    return ApiResponse(value=_shown(await call.run(commands.update(_session(call), patch, owner=call.owner))))


async def delete(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Delete the session and its messages."""
    session = _session(call)
    await call.run(commands.delete(session, owner=call.owner))
    return ApiResponse(value=DeletedConversation(id=conversation_name(session)))


async def list_items(call: ApiRequest[NoInput, ItemListQuery]) -> ApiResponse:
    """List a page of the items in the session's current window."""
    session = _session(call)
    await call.run(commands.session(session, owner=call.owner))
    return ApiResponse(value=await SessionItems(call.owned, session).page(call.query))


async def create_items(call: ApiRequest[NewItems, ItemQuery]) -> ApiResponse:
    """Add finished items."""
    session, owned = _session(call), call.owned
    items = await resolve_references(owned, call.body.items, param="items")
    stored = await store_files(owned, items, param="items", strict=False)
    messages = messages_from(stored, param="items")
    if not messages:
        await owned.run(commands.session(session, owner=owned.owner))
        return ApiResponse(value=page_of([], 0))
    values = [item.value for item in await _add(owned, session, messages, call.request_id)]
    return ApiResponse(value=page_of(values, len(values)))


async def read_item(call: ApiRequest[NoInput, ItemQuery]) -> ApiResponse:
    """Return one item."""
    session = _session(call)
    return ApiResponse(value=(await SessionItems(call.owned, session).find(call.named("item"))).value)


async def delete_item(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Omit an item from the session's window; a call of a server tool together with its result."""
    session, owned = _session(call), call.owned
    item = await SessionItems(owned, session).find(call.named("item"))
    if item.result is not None:
        await _omit(owned, session, item.result, 1)
    await _omit(owned, session, item.item_position, item.parts)
    return ApiResponse(value=_shown(await owned.run(commands.session(session, owner=owned.owner))))


async def _omit(owned: OwnerSessions, session: SessionId, item_position: ItemPosition, parts: int) -> None:
    message = await _message_at(owned, session, item_position)
    gone = range(item_position.part, item_position.part + parts)
    keep = [index for index in range(len(message.parts)) if index not in gone]
    await owned.run(commands.omit(session, item_position.message, keep=keep, owner=owned.owner))


async def _message_at(owned: OwnerSessions, session: SessionId, item_position: ItemPosition) -> Message:
    position = await owned.run(commands.message_position(session, item_position.message, owner=owned.owner))
    page = await owned.run(commands.messages(session, before=position + 1, last=1, owner=owned.owner))
    return page.messages[0]


async def _add(owned: OwnerSessions, session: SessionId, messages: Sequence[NewMessage], key: str | None) -> list[Item]:
    """Record messages and return their items. Results without a matching call are stored as raw items only."""
    try:
        recorded = await owned.handle(session).record(messages, request_id=key)
    except (InvalidPayload, RequestMismatch):
        kept = with_raw_results(messages)
        if kept == [*messages]:
            raise
        recorded = await owned.handle(session).record(kept, request_id=key)
    # Messages that wait behind a running turn have no ids yet. The list of items will have them.
    return items_of(await recorded_in(owned, recorded.turn))


def _session(call: ApiRequest[B, Q]) -> SessionId:
    name = call.named("conversation")
    try:
        return session_named(name)
    except NotFound as error:
        raise NotFound(
            f"conversation {name[:64]!r} does not exist", hint="Create one, or list your sessions."
        ) from error


def _shown(session: SessionInfo) -> ConversationObject:
    return ConversationObject(
        id=conversation_name(session.id), created_at=session.created_at // 1000, metadata=session.metadata
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/conversations",
        name="create_conversation",
        summary="Create a session.",
        run=create,
        body=NewConversation,
        query=NoInput,
        answer=ConversationObject,
        request_id=True,
        files=True,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}",
        name="read_conversation",
        summary="Get a session.",
        run=read,
        body=NoInput,
        query=NoInput,
        answer=ConversationObject,
    ),
    Operation(
        method="POST",
        path="/v1/conversations/{conversation}",
        name="update_conversation",
        summary="Replace a session's metadata.",
        run=update,
        body=NewMetadata,
        query=NoInput,
        answer=ConversationObject,
    ),
    Operation(
        method="DELETE",
        path="/v1/conversations/{conversation}",
        name="delete_conversation",
        summary="Delete a session and its messages.",
        run=delete,
        body=NoInput,
        query=NoInput,
        answer=DeletedConversation,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}/items",
        name="list_items",
        summary="List the items of a session, newest first by default.",
        run=list_items,
        body=NoInput,
        query=ItemListQuery,
        answer=ItemPage,
    ),
    Operation(
        method="POST",
        path="/v1/conversations/{conversation}/items",
        name="create_items",
        summary="Add finished items to a session.",
        run=create_items,
        body=NewItems,
        query=ItemQuery,
        answer=ItemPage,
        request_id=True,
        files=True,
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation}/items/{item}",
        name="read_item",
        summary="Get an item of a session.",
        run=read_item,
        body=NoInput,
        query=ItemQuery,
        answer=dict,
    ),
    Operation(
        method="DELETE",
        path="/v1/conversations/{conversation}/items/{item}",
        name="delete_item",
        summary="Remove an item from a session. It stays in the lineage.",
        run=delete_item,
        body=NoInput,
        query=NoInput,
        answer=ConversationObject,
    ),
)
