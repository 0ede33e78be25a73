"""One JSON file per session, rewritten as a whole for each turn, as many projects do.

The default writes a temporary file and renames it. Variant `synced` also syncs the file and its directory.
"""

import json
import os
from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

_MISSING = {"delta": "A partial answer would rewrite the whole file."}


class JsonFile(Adapter):
    missing = _MISSING

    async def open(self, directory: Path) -> None:
        self._directory = directory / "sessions"
        self._directory.mkdir(exist_ok=True)
        self._synced = self.variant == "synced"

    async def create(self, name: str) -> None:
        self._write(name, [])

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        self._write(name, self._read(name) + [{"role": said.role, "text": said.text} for said in turn])

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        self._write(name, [{"role": said.role, "text": said.text} for turn in turns for said in turn])

    async def create_and_record(self, name: str, turn: Sequence[Said]) -> None:
        self._write(name, [{"role": said.role, "text": said.text} for said in turn])

    async def load(self, name: str) -> list[str]:
        return [message["text"] for message in self._read(name)]

    async def last(self, name: str, count: int) -> list[str]:
        return [message["text"] for message in self._read(name)[-count:]]

    async def resolve(self, name: str) -> object:
        return self._path(name).stat()

    async def newest(self, count: int) -> int:
        with os.scandir(self._directory) as entries:
            return len(nlargest(count, ((entry.stat().st_mtime_ns, entry.name) for entry in entries)))

    async def fork(self, name: str, new: str) -> None:
        self._write(new, self._read(name))

    async def undo(self, name: str) -> None:
        self._write(name, self._read(name)[:-2])

    async def tool_step(self, name: str, call: str, result: str) -> None:
        await self.record(name, [Said("assistant", call)])
        await self.record(name, [Said("tool", result)])

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _read(self, name: str) -> list[dict[str, str]]:
        messages: list[dict[str, str]] = json.loads(self._path(name).read_bytes())
        return messages

    def _write(self, name: str, messages: Sequence[dict[str, str]]) -> None:
        path = self._path(name)
        draft = path.with_suffix(f".{os.getpid()}")
        with draft.open("w") as file:
            json.dump(messages, file)
            if self._synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if self._synced:
            _sync_directory(self._directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


ADAPTER = JsonFile
