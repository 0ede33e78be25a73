"""A pipeline: the statements of a transaction wait until a result is needed, and are then sent together.

One flush is one round trip, however many statements it sends. The server executes them in their order, and after a
failure it skips the rest, also the COMMIT. So a statement whose result is not needed costs no round trip of its own.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from backstay.store.engine import Row
from backstay.store.postgres.protocol.prepared import Key, PreparedStatements
from backstay.store.postgres.protocol.values import Converter

# The most that waits: the statements of a large import are not kept in memory until its end.
MOST_QUEUED, MOST_BYTES = 200, 1 << 20

_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED)

Receiver = Callable[[list[Row]], None]


class PipelineConnection(Protocol):
    """The parts of a connection that a pipeline uses."""

    busy: float
    timeouts: tuple[bytes, ...]
    converter: Converter
    prepared: PreparedStatements

    @property
    def pgconn(self) -> PGconn: ...

    def wait(self, gen: PQGen[None]) -> None:
        """Run a generator of the driver. After a Ctrl-C it cancels the statement on the server."""
        ...


class _Command(NamedTuple):
    """A statement with its parameters as bytes, and the receiver of its rows."""

    text: bytes
    values: Sequence[Any]  # Any: buffers of the driver
    types: tuple[int, ...]
    formats: Sequence[Format]
    named: bool
    closing: bool
    receiver: Receiver | None


class _Sent(NamedTuple):
    """A message that the server answers with one result: a command, or the preparation of one."""

    command: _Command | None
    key: Key | None = None
    name: bytes = b""


class Pipeline:
    """The statements of one transaction on one connection.

    `answered` is whether the server has executed statements of this pipeline. `rejected` is whether it has rejected one
    before the last: nothing after that one was executed.
    """

    __slots__ = ("_queue", "_size", "answered", "connection", "rejected")

    def __init__(self, connection: PipelineConnection) -> None:
        self.connection = connection
        self.answered = self.rejected = False
        self._queue: list[_Command] = []
        self._size = 0

    def queue(
        self,
        text: bytes,
        values: Sequence[object] = (),
        *,
        named: bool = True,
        closing: bool = False,
        receiver: Receiver | None = None,
    ) -> None:
        """Send a statement with the next flush.

        Args:
            text: With numbered parameters.
            values: The values of the parameters.
            named: Whether it is worth preparing.
            closing: Whether the server considers itself idle after it, so that its timeout for idle transactions runs
                if the rest never arrives.
            receiver: Gets the rows of the result.
        """
        if self._size > MOST_BYTES or len(self._queue) >= MOST_QUEUED:
            self.flush()
        encoded, types, formats = self.connection.converter.encode(values) if values else ([], (), [])
        self._queue.append(_Command(text, encoded, types, formats, named, closing, receiver))
        self._size += sum(map(len, filter(None, encoded)))

    def rows(self, text: bytes, values: Sequence[object] = ()) -> list[Row]:
        """Send a statement with all that wait, and return its rows."""
        self.queue(text, values)
        return self.connection.converter.rows(self.flush())

    def changed(self, text: bytes, values: Sequence[object] = ()) -> int:
        """Send a statement with all that wait, and return how many rows it changed."""
        self.queue(text, values)
        return self.flush().command_tuples or 0

    def start(self) -> None:
        """Send the beginning of a transaction now, if it has not been sent yet."""
        if self._queue and not self.answered:
            self.flush()

    def begin_reading(self) -> None:
        """Take one consistent snapshot with the next statement, and keep it until the end of the transaction."""
        for text in (_READING, *self.connection.timeouts):
            self.queue(text)

    def commit(self) -> None:
        """Send a COMMIT with all that wait.

        A timeout must not end the wait for a standby: the server would answer as if the standby had confirmed.
        """
        # The COMMIT of a transaction that has failed undoes it.
        self.queue(b"SET LOCAL statement_timeout = 0", closing=True)
        self.queue(b"COMMIT", named=False)
        self.flush()

    def flush(self) -> PGresult:
        """Send all that wait, and return the result of the last.

        Raises:
            psycopg.Error: The error of the first that failed, or the loss of the connection.
        """
        commands, self._queue, self._size = self._queue, [], 0
        results: list[PGresult] = []
        sent = [message for command in commands for message in self._messages(command)]
        try:
            self._exchange(sent, results)
        except psycopg.OperationalError:
            # The server may have sent an error before it closed the connection. That one has the cause.
            self._receive(sent, results)
            raise
        self._receive(sent, results)
        self.answered = True
        return results[-1]

    def _messages(self, command: _Command) -> list[_Sent]:
        if not command.named:
            return [_Sent(command)]
        key = (command.text, command.types)
        prepared = self.connection.prepared
        name = prepared.name_of(key)
        if name is not None:
            return [_Sent(command, None, name)]
        name = prepared.new_name()
        if name is None:
            return [_Sent(command)]
        return [_Sent(None, key, name), _Sent(command, None, name)]

    def _exchange(self, sent: Sequence[_Sent], results: list[PGresult]) -> None:
        connection = self.connection
        pgconn = connection.pgconn
        pgconn.enter_pipeline_mode()
        connection.busy = monotonic()
        try:
            ends = sum(_send(pgconn, message) for message in sent) + 1
            pgconn.pipeline_sync()
            connection.wait(_communicate(pgconn, results, ends))
        finally:
            connection.busy = 0.0
            _leave_pipeline_mode(pgconn)

    def _receive(self, sent: Sequence[_Sent], results: Sequence[PGresult]) -> None:
        """Give each result to its receiver. Raises the error of the first statement that failed."""
        for message, result in zip(sent, results, strict=False):
            if result.status in _FAILED:
                error = error_from_result(result, encoding="utf-8")
                # Without a code the error is the driver's: the connection is lost, and the server may have continued.
                self.rejected = error.sqlstate is not None and message is not sent[-1]
                raise error
            if message.key is not None:
                self.connection.prepared.add(message.key, message.name)
            elif message.command is not None and message.command.receiver is not None:
                message.command.receiver(self.connection.converter.rows(result))


def _send(pgconn: PGconn, message: _Sent) -> bool:
    """Send a message. Returns whether the server answers the end of a part after it."""
    command = message.command
    if command is None:
        text, types = message.key or (b"", ())
        pgconn.send_prepare(message.name, text, param_types=types)
    elif message.name:
        pgconn.send_query_prepared(message.name, command.values, param_formats=command.formats)
    else:
        pgconn.send_query_params(command.text, command.values, param_types=command.types, param_formats=command.formats)
    closing = command is not None and command.closing
    if closing:
        pgconn.pipeline_sync()
    return closing


def _communicate(pgconn: PGconn, results: list[PGresult], ends: int) -> PQGen[None]:
    """Send everything, and gather the results up to the end of the last part."""
    while pgconn.flush():
        # The server may be unable to read on because its answers were not read.
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    between = False
    while ends:
        while pgconn.is_busy():
            if (yield Wait.R) & Ready.R:
                pgconn.consume_input()
        result = pgconn.get_result()
        if result is None and between:
            raise psycopg.OperationalError(f"the pipeline broke: {pgconn.get_error_message()}")
        between = result is None
        if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
            ends -= 1
        elif result is not None:
            results.append(result)


def _leave_pipeline_mode(pgconn: PGconn) -> None:
    """Return to the mode in which the driver works. A connection that cannot is closed."""
    try:
        pgconn.exit_pipeline_mode()
    except psycopg.Error:
        pgconn.finish()
