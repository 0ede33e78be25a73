"""The files that come with the server: read once, compressed once, and known by what they hold."""

import gzip
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json",
}


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it goes out."""

    content: bytes
    packed: bytes
    kind: str
    etag: str

    def answer(self, request: Request) -> Response:
        """The file, or that the browser has it already; it asks every time, so that an upgrade is seen at once."""
        headers = {"cache-control": "no-cache", "etag": self.etag, "vary": "accept-encoding"}
        if self.etag in [told.strip() for told in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, headers=headers | {"content-encoding": "gzip"}, media_type=self.kind)
        return Response(self.content, headers=headers, media_type=self.kind)


class Files:
    """Our own files by their paths. A path made of a request's words is looked up here and never opened."""

    def __init__(self) -> None:
        self._files = {path: _file(path, found) for path, found in _walk(files("backstay.server").joinpath("static"))}

    def answer(self, path: str, request: Request) -> Response:
        """The file at this path, or that there is none."""
        file = self._files.get(path)
        return Response(status_code=404) if file is None else file.answer(request)


def _walk(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for found in folder.iterdir():
        path = above + found.name
        if found.is_dir():
            yield from _walk(found, f"{path}/")
        else:
            yield path, found


def _file(path: str, found: Traversable) -> File:
    content = found.read_bytes()
    kind = KINDS.get(path[path.rfind(".") :], "application/octet-stream")
    return File(
        content=content,
        packed=gzip.compress(content, mtime=0),
        kind=kind,
        etag=f'"{sha256(content).hexdigest()[:32]}"',
    )
