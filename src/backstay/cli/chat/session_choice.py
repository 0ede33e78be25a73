"""Find a session by its id, or by a unique beginning of it."""

from backstay.cli.chat.exchange import Exchange
from backstay.cli.session_names import MANY, is_whole, only, prefix_of
from backstay.model.ids import check_session_id
from backstay.model.session import SessionInfo


async def choose(exchange: Exchange, name: str) -> SessionInfo:
    """Return the session with this id or prefix; raise `NotFound` if none or several match."""
    if is_whole(name):
        return await exchange.session(check_session_id(name))
    return only(name, await exchange.beginning_with(prefix_of(name), MANY) if name else ())
