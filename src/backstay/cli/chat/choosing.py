"""The session that a person means in a chat: by its id, or by as much of it as is unique."""

from backstay.cli.chat.exchange import Exchange
from backstay.cli.naming import MANY, is_whole, only, prefix_of
from backstay.model.ids import check_session_id
from backstay.model.session import Session


async def choose(exchange: Exchange, name: str) -> Session:
    """The session that is called so; `NotFound` if none is, or several are."""
    if is_whole(name):
        return await exchange.session(check_session_id(name))
    return only(name, await exchange.beginning_with(prefix_of(name), MANY) if name else ())
