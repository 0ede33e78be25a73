"""The sessions that a person may reach from a chat."""

import re

from backstay.errors import Conflict, NotFound
from backstay.gateways.admission import Admission
from backstay.gateways.platform import IncomingMessage
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.ids import SessionId
from backstay.model.session import SessionFilter, SessionInfo
from backstay.store import commands
from backstay.store.commands.gateways import notice_commands

# So many sessions are listed, each with a button.
MOST_LISTED = 8
_MANY = 20
_LONGEST_TITLE = 60
_PREFIX = "ses_"
_NUMBER = re.compile(r"[1-9][0-9]?")
_LETTERS = re.compile(r"(?:ses_)?[0-9a-z]{2,26}")


class ChatSessions:
    """Finds sessions for the people of a gateway.

    People who are allowed by name reach every session of the owner. Others, who are allowed with their group or as
    anybody, reach the sessions that their chat shows.
    """

    def __init__(self, tasks: PollerTasks, admission: Admission) -> None:
        self._app, self._proof, self._admission = tasks.app, tasks.proof, admission

    async def listed(self, message: IncomingMessage) -> tuple[SessionInfo, ...]:
        """The newest open sessions that the sender reaches."""
        if await self._admission.names(message.sender):
            wanted = SessionFilter(state="open", archived=False)
            page = await self._app.run(
                commands.list_sessions(owner=self._proof.owner, filter=wanted, limit=MOST_LISTED)
            )
            return page.sessions
        found = [
            await self._app.run(commands.session(name, owner=self._proof.owner)) for name in await self._of(message)
        ]
        found.sort(key=lambda session: session.active_at, reverse=True)
        return tuple(session for session in found if session.state == "open")[:MOST_LISTED]

    async def find(self, message: IncomingMessage, name: str) -> SessionInfo:
        """The session with this number in the list, or with these letters in its id.

        Raises:
            NotFound: The sender reaches no such session.
            Conflict: Several sessions have these letters.
        """
        name = name.strip().lower()
        if _NUMBER.fullmatch(name):
            listed = await self.listed(message)
            if int(name) > len(listed):
                raise NotFound(f"there is no session {name} in the list", hint="/sessions shows it.")
            return listed[int(name) - 1]
        found = await self._with_letters(message, name) if _LETTERS.fullmatch(name) else ()
        if not found:
            raise NotFound(f"no session is called {name[:40]!r}", hint="/sessions lists them.")
        if len(found) > 1:
            raise Conflict(f"{len(found)} sessions are called {name[:40]!r}", hint="Give more letters of the id.")
        return found[0]

    async def _with_letters(self, message: IncomingMessage, letters: str) -> tuple[SessionInfo, ...]:
        prefix = letters if letters.startswith(_PREFIX) else _PREFIX + letters
        owner = self._proof.owner
        found = await self._app.run(commands.beginning_with(prefix, owner=owner, limit=_MANY))
        found = found or await self._app.run(commands.ending_with(letters, owner=owner, limit=_MANY))
        if not await self._admission.names(message.sender):
            shown = await self._of(message)
            found = tuple(session for session in found if session.id in shown)
        return found

    async def _of(self, message: IncomingMessage) -> frozenset[SessionId]:
        shown = notice_commands.shown_in(self._proof.name, message.place.destination, owner=self._proof.owner)
        return frozenset(delivery.session for delivery in await self._app.run(shown))


def title_of(session: SessionInfo) -> str:
    """The name of a session for people, on one line."""
    text = " ".join((session.title or session.preview or "untitled").split())
    for mark in "*_`[]":
        text = text.replace(mark, "")
    return text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]}…"
