"""The stage in a terminal: a line to type on, which is always there, and above it what is under way.

One application runs for the whole chat. What is finished is written above it and scrolls away like any output; the tail
is drawn by the application together with the line, so that both can change at any time without disturbing each other.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from backstay.cli.chat.paint import PROMPT, Paint
from backstay.cli.chat.stage import Heard, Line, farewells
from backstay.cli.chat.story import Block

# So often is the tail drawn at most, in seconds.
_REDRAW = 0.04
# Lines that are left for what is typed.
_ROOM = 6


class PromptStage:
    """A terminal with somebody before it."""

    paced = False

    def __init__(
        self,
        tail: Callable[[], Sequence[Block]],
        *,
        busy: Callable[[], bool],
        commands: Sequence[str],
        history: Path | None,
    ) -> None:
        self._tail, self._busy = tail, busy
        self._paint = Paint()
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._offered = False
        self._painted: str | None = None
        self._painted_for = (0, 0)
        kept: History = InMemoryHistory() if history is None else FileHistory(history)
        self._prompt: PromptSession[None] = PromptSession(
            self._message,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=self._keys(),
            history=kept,
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            reserve_space_for_menu=0,
            erase_when_done=True,
        )
        self._prompt.app.min_redraw_interval = _REDRAW

    @asynccontextmanager
    async def open(self) -> AsyncIterator["PromptStage"]:
        """The line can be typed on inside the block."""
        typing = asyncio.create_task(self._type(), name="backstay prompt")
        try:
            with farewells(self._heard):
                yield self
        finally:
            if self._prompt.app.is_running:
                self._prompt.app.exit()
            await typing

    async def show(self, blocks: Sequence[Block]) -> None:
        self._painted = None
        if blocks:
            self._write_above(self._paint.blocks(blocks, _size()[0]))

    def refresh(self) -> None:
        self._painted = None
        self._prompt.app.invalidate()

    async def hear(self) -> Heard:
        return await self._heard.get()

    def go_on(self) -> None:
        """Whoever types does not wait."""

    def put(self, text: str) -> bool:
        self._prompt.default_buffer.text = text
        self._prompt.default_buffer.cursor_position = len(text)
        self._offered = True
        return True

    async def _type(self) -> None:
        with suppress(EOFError):
            await self._prompt.prompt_async()
        self._heard.put_nowait("leave")

    def _write_above(self, text: str) -> None:
        """Take the line away, write, and draw the line again below.

        The terminal stays as it is meanwhile: if it were given back to write, as is usual, whatever is typed at that
        moment would be echoed, and Enter would no longer be Enter.
        """
        app = self._prompt.app
        if app.is_running:
            app.renderer.erase()
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.output.flush()
        if app.is_running:
            app.render_counter += 1  # What was drawn under the last number is not asked for again.
            app.renderer.render(app, app.layout)

    def _message(self) -> ANSI:
        """What stands before the place to type: the tail, as much of it as there is room for."""
        columns, rows = size = _size()
        if self._painted is None or self._painted_for != size:
            lines = self._paint.blocks(self._tail(), columns).splitlines(keepends=True)
            self._painted_for = size
            self._painted = "".join(lines[-max(3, rows - _ROOM) :])
        return ANSI(f"{self._painted}{PROMPT}")

    def _clear(self) -> None:
        """An empty line again; what had been offered is no longer on offer."""
        self._prompt.default_buffer.reset()
        self._offered = False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text.strip():
                buffer.append_to_history()
                self._heard.put_nowait(Line(buffer.text, self._offered))
            self._clear()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text and not self._busy():
                self._clear()
            else:
                self._heard.put_nowait("interrupt")

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                self._heard.put_nowait("leave")

        return keys


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines
