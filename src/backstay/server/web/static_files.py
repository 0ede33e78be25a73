"""The static files of the server: read once per process, compressed at the first request."""

import gzip
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
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
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}


class File(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One file, ready to be sent."""

    content: bytes
    kind: str
    etag: str

    @cached_property
    def compressed(self) -> bytes:
        """The content, compressed."""
        return gzip.compress(self.content, mtime=0)

    def answer(self, request: Request) -> Response:
        """The file, or 304. Browsers revalidate it every time, so an upgrade takes effect at once."""
        headers = {"cache-control": "no-cache", "etag": self.etag, "vary": "accept-encoding"}
        if self.etag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.compressed, headers=headers | {"content-encoding": "gzip"}, media_type=self.kind)
        return Response(self.content, headers=headers, media_type=self.kind)


class Files:
    """The static files by path. Request paths are only looked up here and never opened, so traversal is impossible."""

    def __init__(self) -> None:
        self._files = _own_files()

    def answer(self, path: str, request: Request) -> Response:
        """The response for this path, 404 if there is no such file."""
        file = self._files.get(path)
        return Response(status_code=404) if file is None else file.answer(request)


@cache
def _own_files() -> Mapping[str, File]:
    return {path: _file(path, found) for path, found in _walk(files("backstay.server").joinpath("static"))}


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
    return File(content=content, kind=kind, etag=f'"{sha256(content).hexdigest()[:32]}"')
