"""The turns of a document, their queue, their requests and their calls."""

from collections import Counter

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.address import Address
from backstay.model.codec import check_body, check_name, encode_parts
from backstay.model.content import check_input, check_role
from backstay.model.export import TO_SESSION, Export, ExportedTurn
from backstay.model.ids import TurnId
from backstay.model.inspection.complaint import at, is_hex, require
from backstay.model.limits import Limits
from backstay.model.turn import BEHIND, COMPACTOR, Completed


def check_turns(export: Export, limits: Limits) -> None:
    """Raise unless each turn could be in this state, at most one runs, and their calls are counted."""
    inspection = _Inspection(export, limits)
    for index, turn in enumerate(export.turns):
        inspection.check(turn, f"$.turns[{index}]")
    inspection.check_queue()
    inspection.check_requests()
    inspection.check_calls()


class _Inspection:
    def __init__(self, export: Export, limits: Limits) -> None:
        self._export, self._limits = export, limits
        self._turns = {turn.id: turn for turn in export.turns}

    def check(self, turn: ExportedTurn, place: str) -> None:
        root = self._turns.get(turn.root)
        require(root is not None and root.root == root.id, f"{place}.root", "is no root turn of the session")
        ended = turn.state == "ended"
        require(ended == (turn.outcome is not None), f"{place}.outcome", "does not fit the state")
        require(ended == (turn.ended_at is not None), f"{place}.ended_at", "does not fit the state")
        require(ended or self._export.session.state == "open", place, "has not ended, but its session has")
        self._check_taker(turn, place)
        with at(place):
            if turn.agent is not None:
                check_name("the agent's name", turn.agent, self._limits.name_bytes)
            check_body(turn.usage, self._limits)
            if turn.state == "waiting":
                self._check_waiting(turn)
        if turn.state != "waiting":
            require(turn.input is None and turn.record is None, place, "has an input and does not wait")
        if turn.state == "running":
            started = turn.agent is not None and turn.first_event is not None and turn.started_at is not None
            require(started and turn.taken_by is None, place, "runs and never started")

    def _check_taker(self, turn: ExportedTurn, place: str) -> None:
        if turn.taken_by is not None:
            taker = self._turns.get(turn.taken_by)
            require(taker is not None and taker is not turn, f"{place}.taken_by", "is no other turn of the session")
            going = turn.state == "ended" or (taker is not None and taker.state == "running")
            require(going, f"{place}.taken_by", "does not run")

    def _check_waiting(self, turn: ExportedTurn) -> None:
        """What waits could have been submitted."""
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
        """At most one runs, those that wait have a place each, and the session has counted those that are over."""
        turns, facts = self._export.turns, self._export.session
        require(sum(turn.state == "running" for turn in turns) <= 1, "$.turns", "run side by side")
        places = [turn.place for turn in turns if turn.state == "waiting" and turn.taken_by is None]
        if len(places) > self._limits.waiting_turns:
            raise TooLarge(f"$.turns: {len(places):,} wait; at most {self._limits.waiting_turns:,} are accepted")
        require(len(set(places)) == len(places), "$.turns", "wait at one place")
        counted = all(place % BEHIND <= facts.queued and place < 2 * BEHIND for place in places)
        require(counted and facts.queued < BEHIND, "$.session.queued", "does not count the turns that wait")
        over = sum(map(_counts, turns))
        require(facts.turns == over, "$.session.turns", f"is {facts.turns}, not {over}")

    def check_requests(self) -> None:
        """A request became one turn."""
        seen: set[tuple[str, str]] = set()
        for index, turn in enumerate(self._export.turns):
            request, place = turn.request, f"$.turns[{index}].request"
            if request is None:
                continue
            with at(place):
                check_name("the request id", request.id, self._limits.name_bytes)
                if request.scope is not None and request.scope != TO_SESSION:
                    Address.parse(request.scope)
            require(is_hex(request.hash, 32), f"{place}.hash", "is no hash")
            if request.scope is not None:
                require((request.scope, request.id) not in seen, place, "became another turn before")
                seen.add((request.scope, request.id))

    def check_calls(self) -> None:
        """Each root's calls are counted from nought, and each turn's have their own ids."""
        counted: Counter[TurnId] = Counter()
        made: set[tuple[TurnId, str]] = set()
        for index, call in sorted(enumerate(self._export.calls), key=lambda item: item[1].ordinal):
            place, turn = f"$.calls[{index}]", self._turns.get(call.turn)
            require(turn is not None and turn.root == call.root, place, "is of no turn of that root")
            require(call.ordinal == counted[call.root], f"{place}.ordinal", f"is not {counted[call.root]}")
            require((call.turn, call.call) not in made, place, "was made before")
            require(is_hex(call.arguments_hash, 32), f"{place}.arguments_hash", "is no hash")
            with at(place):
                check_name("a tool call's id", call.call, self._limits.name_bytes)
                check_name("a tool's name", call.name, self._limits.name_bytes)
            counted[call.root] += 1
            made.add((call.turn, call.call))


def _counts(turn: ExportedTurn) -> bool:
    """Whether the session counts it: it ran by itself and ended, or brought finished messages that went in.

    A compaction is nothing that anybody said.
    """
    if turn.agent == COMPACTOR:
        return False
    went_in = turn.agent is None and isinstance(turn.outcome, Completed)
    return turn.state == "ended" and turn.taken_by is None and (turn.started_at is not None or went_in)
