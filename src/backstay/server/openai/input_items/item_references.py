"""References to items that this server issued: replaced by the items before the input is parsed."""

from collections.abc import Sequence

from backstay.errors import NotFound
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.openai.encoding.items import Value, items_of
from backstay.server.openai.openai_errors import BadParameter
from backstay.server.openai.openai_ids import position_of_item
from backstay.store import commands

_REFERENCE = "item_reference"


async def resolve_references(owned: OwnerSessions, items: Sequence[Value], *, param: str) -> list[Value]:
    """The same items, with the referenced item in place of each reference.

    Raises:
        BadParameter: The caller has no item with the id.
    """
    return [
        await _referenced(owned, item, f"{param}[{index}]") if _is_reference(item) else item
        for index, item in enumerate(items)
    ]


def _is_reference(item: Value) -> bool:
    # The type may be left out: then the id is all that there is.
    return item.get("type") == _REFERENCE or (item.keys() <= {"id", "type"} and item.get("type") is None)


async def _referenced(owned: OwnerSessions, item: Value, param: str) -> Value:
    name = item.get("id")
    if not isinstance(name, str):
        raise BadParameter(f"{param}.id", f"{param} has no id", hint="Send the id of an item.")
    try:
        # The message, and those of its turn after it: the result of a call is part of the item of the call.
        messages = await owned.run(commands.rest_of_turn(position_of_item(name).message, owner=owned.owner))
    except NotFound:
        messages = ()
    found = next((one.value for one in items_of(messages) if one.name == name), None)
    if found is None:
        raise BadParameter(
            f"{param}.id",
            f"item {name[:64]!r} does not exist",
            hint="Send the item itself. An item of a response that was not stored cannot be referenced.",
            code="item_not_found",
        )
    return found
