"""Find a session by its id, by the first or last letters of it, or by its place in the list."""

from backstay.cli.chat.exchange import Exchange
from backstay.cli.session_names import MANY, is_whole, list_number, numbered, only, prefix_of
from backstay.model.ids import check_session_id
from backstay.model.session import SessionInfo


async def choose(exchange: Exchange, name: str) -> SessionInfo:
    """Return the session with this name; raise `NotFound` if none or several match."""
    if is_whole(name):
        return await exchange.session(check_session_id(name))
    number = list_number(name)
    if number is not None:
        return numbered(name, await exchange.sessions(number))
    found = await exchange.beginning_with(prefix_of(name), MANY) if name else ()
    return only(name, found or await exchange.ending_with(name, MANY))
