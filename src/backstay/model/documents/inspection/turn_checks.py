"""Checks the turns of a document, their queue, their requests and their calls."""

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.addresses.address import Address
from backstay.model.codec import check_body, check_name, encode_parts
from backstay.model.content import check_input, check_role
from backstay.model.documents.document import TO_SESSION, ExportedTurn
from backstay.model.documents.inspection.inspected import Document
from backstay.model.documents.inspection.requirements import at, is_hex, require
from backstay.model.ids import TurnId
from backstay.model.limits import Limits
from backstay.model.turn import BACK_OF_QUEUE, COMPACTOR, Completed


def check_turns(document: Document, limits: Limits) -> None:
    """Raise unless each turn could be in its state, at most one runs, and their calls are numbered."""
    inspection = _TurnInspection(document, limits)
    for location, turn in document.turns():
        inspection.check(turn, location)
    inspection.check_queue()
    inspection.check_calls()


class _TurnInspection:
    def __init__(self, document: Document, limits: Limits) -> None:
        self._document, self._limits = document, limits
        self._facts = document.header.session
        self._requests = document.keys()
        self._queue_places: list[int] = []
        self._running = self._over = 0

    def check(self, turn: ExportedTurn, location: str) -> None:
        root = turn if turn.root == turn.id else self._document.turn(turn.root)
        require(root is not None and root.root == root.id, f"{location}.root", "is not a root turn of the session")
        ended = turn.state == "ended"
        require(ended == (turn.outcome is not None), f"{location}.outcome", "does not match the state")
        require(ended == (turn.ended_at is not None), f"{location}.ended_at", "does not match the state")
        require(ended or self._facts.state == "open", location, "has not ended, but its session has")
        self._check_taker(turn, location)
        with at(location):
            if turn.agent is not None:
                check_name("the agent's name", turn.agent, self._limits.name_bytes)
            check_body(turn.usage, self._limits)
            if turn.state == "waiting":
                self._check_waiting(turn)
        require(turn.state == "waiting" or not turn.held, f"{location}.held", "does not match the state")
        if turn.state != "waiting":
            require(turn.input is None and turn.record is None, location, "has an input but does not wait")
        if turn.state == "running":
            started = turn.agent is not None and turn.first_event is not None and turn.started_at is not None
            require(started and turn.taken_by is None, location, "is running but never started")
        self._check_request(turn, f"{location}.request")
        self._count(turn)

    def _count(self, turn: ExportedTurn) -> None:
        self._running += turn.state == "running"
        self._over += _counts(turn)
        if turn.state == "waiting" and turn.taken_by is None:
            self._queue_places.append(turn.place)
            if len(self._queue_places) > self._limits.waiting_turns:
                raise TooLarge(f"$.turns: more than {self._limits.waiting_turns:,} wait")

    def _check_taker(self, turn: ExportedTurn, location: str) -> None:
        if turn.taken_by is not None:
            taker = None if turn.taken_by == turn.id else self._document.turn(turn.taken_by)
            require(taker is not None, f"{location}.taken_by", "is not another turn of the session")
            is_active = turn.state == "ended" or (taker is not None and taker.state == "running")
            require(is_active, f"{location}.taken_by", "does not run")

    def _check_waiting(self, turn: ExportedTurn) -> None:
        """Check that a waiting turn could have been submitted."""
        if turn.agent is not None:
            if turn.input is None or turn.record is not None or turn.agent == COMPACTOR:
                raise InvalidPayload("it waits without an input")
            encode_parts(turn.input, self._limits)
            check_input(turn.input)
            return
        if not turn.record or turn.input is not None:
            raise InvalidPayload("it waits without messages")
        if len(turn.record) > self._limits.messages_per_record:
            raise TooLarge(f"{len(turn.record):,} messages; at most {self._limits.messages_per_record:,} are accepted")
        for message in turn.record:
            encode_parts(message.parts, self._limits)
            check_role(message.role, message.parts)

    def check_queue(self) -> None:
        """Check that at most one turn runs, waiting turns have distinct places, and the session's counts are right."""
        facts, queue_places = self._facts, self._queue_places
        require(self._running <= 1, "$.turns", "run at the same time")
        require(len(set(queue_places)) == len(queue_places), "$.turns", "wait at the same position")
        counted = all(place % BACK_OF_QUEUE <= facts.queued and place < 2 * BACK_OF_QUEUE for place in queue_places)
        require(counted and facts.queued < BACK_OF_QUEUE, "$.session.queued", "does not count the turns that wait")
        require(facts.turns == self._over, "$.session.turns", f"is {facts.turns}, not {self._over}")

    def _check_request(self, turn: ExportedTurn, location: str) -> None:
        """Check the request id of a turn: a request becomes only one turn."""
        request = turn.request
        if request is None:
            return
        with at(location):
            check_name("the request id", request.id, self._limits.name_bytes)
            if request.scope is not None and request.scope != TO_SESSION:
                Address.parse(request.scope)
        require(is_hex(request.hash, 32), f"{location}.hash", "is not a hash")
        if request.scope is not None:
            require(self._requests.add(request.scope, request.id), location, "became another turn before")

    def check_calls(self) -> None:
        """Check that each root's calls are numbered from 0, and that call ids are unique within a turn."""
        root: TurnId | None = None
        ordinal, made = 0, self._document.keys()
        for location, call in self._document.calls():
            root, ordinal = call.root, ordinal if call.root == root else 0
            turn = self._document.turn(call.turn)
            require(turn is not None and turn.root == call.root, location, "does not belong to a turn of that root")
            require(call.ordinal == ordinal, f"{location}.ordinal", f"is not {ordinal}")
            require(made.add(call.turn, call.call), location, "was made earlier")
            require(is_hex(call.arguments_hash, 32), f"{location}.arguments_hash", "is not a hash")
            with at(location):
                check_name("a tool call's id", call.call, self._limits.name_bytes)
                check_name("a tool's name", call.name, self._limits.name_bytes)
            ordinal += 1


def _counts(turn: ExportedTurn) -> bool:
    """Whether the session counts the turn: it ran by itself and ended, or its recorded messages were added.

    A compaction does not count.
    """
    if turn.agent == COMPACTOR:
        return False
    was_steering = turn.agent is None and isinstance(turn.outcome, Completed)
    return turn.state == "ended" and turn.taken_by is None and (turn.started_at is not None or was_steering)
