"""Chat input and output on a terminal: a permanent input line, and above it the output that can still change.

One prompt_toolkit application runs for the whole chat. Finished blocks are written above it and scroll away like any
output. The application draws the tail and the input line together, so both can change without disturbing each other.
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

from backstay.cli.chat.blocks import Block
from backstay.cli.chat.chat_io import TypedLine, UserInput, exit_signals
from backstay.cli.chat.terminal_style import PROMPT, TerminalStyle

# The shortest time between two drawings of the tail, in seconds.
_REDRAW = 0.04
# The lines that are left for the input.
_ROOM = 6


class TerminalIO:
    """An interactive terminal."""

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
        self._style = TerminalStyle()
        self._inputs: asyncio.Queue[UserInput] = asyncio.Queue()
        self._offered = False
        self._drawn: str | None = None
        self._drawn_for = (0, 0)
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
    async def open(self) -> AsyncIterator["TerminalIO"]:
        """Show the input line inside the block."""
        typing = asyncio.create_task(self._type(), name="backstay prompt")
        try:
            with exit_signals(self._inputs):
                yield self
        finally:
            if self._prompt.app.is_running:
                self._prompt.app.exit()
            else:
                typing.cancel()  # It has ended, or not begun: then it would still wait for a key.
            await asyncio.wait({typing})
            if not typing.cancelled():
                typing.result()

    async def show(self, blocks: Sequence[Block]) -> None:
        self._drawn = None
        if blocks:
            self.write_above(self._style.blocks(blocks, _size()[0]))

    def refresh(self) -> None:
        self._drawn = None
        self._prompt.app.invalidate()

    async def read_input(self) -> UserInput:
        return await self._inputs.get()

    def resume(self) -> None:
        """Do nothing: the person can type at any time."""

    def put(self, text: str) -> bool:
        self._prompt.default_buffer.text = text
        self._prompt.default_buffer.cursor_position = len(text)
        self._offered = True
        return True

    async def _type(self) -> None:
        with suppress(EOFError):
            await self._prompt.prompt_async()
        self._inputs.put_nowait("exit")

    def write_above(self, text: str) -> None:
        """Erase the input line, write the text, and draw the input line again below it.

        The terminal stays in raw mode meanwhile. In the usual way (`run_in_terminal`) it would leave raw mode: keys
        typed at that moment would be echoed, and Enter would arrive as another key.
        """
        app = self._prompt.app
        if app.is_running:
            app.renderer.erase()
        app.output.write_raw(text.replace("\n", "\r\n"))
        app.output.flush()
        if app.is_running:
            app.render_counter += 1  # The application caches by this number what it drew; it must draw again.
            app.renderer.render(app, app.layout)

    def _message(self) -> ANSI:
        """Return the text before the input: as much of the tail as there is room for."""
        columns, rows = size = _size()
        if self._drawn is None or self._drawn_for != size:
            lines = self._style.blocks(self._tail(), columns).splitlines(keepends=True)
            self._drawn_for = size
            self._drawn = "".join(lines[-max(3, rows - _ROOM) :])
        return ANSI(f"{self._drawn}{PROMPT}")

    def _clear(self) -> None:
        """Empty the input line; it no longer holds an offered message."""
        self._prompt.default_buffer.reset()
        self._offered = False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text.strip():
                buffer.append_to_history()
                self._inputs.put_nowait(TypedLine(buffer.text, self._offered))
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
                self._inputs.put_nowait("interrupt")

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                self._inputs.put_nowait("exit")

        return keys


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines
