"""A Bot API on loopback, with people who write to a bot. It can fail as the real one does.

Faults: it repeats and reorders updates, forgets which were confirmed, is slow, answers 429 and 5xx before or after it
has done what was asked, and cuts an answer in the middle. The people see what really arrived, whatever the bot was
told.
"""

import asyncio
import html
import json
import random
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "7:fake-token"
BOT = {"id": 7, "is_bot": True, "first_name": "Bot", "username": "fake_bot"}

Json = dict[str, Any]  # Any: whatever the Bot API has there
Fault = Literal[
    "429",
    "500 before",
    "500 after",
    "cut before",
    "cut after",
    "repeat",
    "reorder",
    "duplicate",
    "forget",
    "slow",
    "400",
    "401",
    "refused",
]
_DISORDER: list[Fault] = ["repeat", "forget", "reorder", "duplicate"]
_REFUSALS: dict[str | None, tuple[int, str]] = {
    "400": (400, "Bad Request: can't parse entities: unsupported start tag"),
    "401": (401, "Unauthorized"),
    "refused": (400, "Bad Request: nobody likes this"),
}


@dataclass(frozen=True)
class Seen:
    """A message of the bot, as the people in the chat see it."""

    chat: int
    text: str
    thread: int | None
    mode: str | None
    number: int = 0
    buttons: tuple[tuple[str, str], ...] = ()
    file: tuple[str, str, bytes] | None = None
    """How it is shown, such as "photo"; its name; its bytes."""
    silent: bool = False

    def button(self, label: str) -> str:
        """What the platform returns when the button with this beginning is pressed."""
        return next(data for shown, data in self.buttons if shown.startswith(label))


@dataclass
class FakeTelegram:
    """The server's state. All methods may be called from any thread."""

    seed: int = 0
    chance: float = 0.0
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    dead_threads: set[int] = field(default_factory=set)
    blocked: set[int] = field(default_factory=set)
    """Chats that have blocked the bot."""
    migrated: dict[int, int] = field(default_factory=dict)
    """Groups that became supergroups, and their new ids."""
    files: dict[str, bytes] = field(default_factory=dict)
    url: str = ""
    webhook: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Condition()
        self._updates: list[Json] = []
        self._confirmed = 0
        self._next_update, self._next_message = 1, 1
        self._seen: list[Seen] = []
        self._drafts: dict[int, str] = {}
        self.calls: list[tuple[str, int, str]] = []
        """What was asked for: method, chat and text. Also what was answered with a fault."""
        self.times: list[float] = []
        """When it was asked for."""
        self._random = random.Random(self.seed)
        self.menu: list[Json] = []
        self.answers: list[tuple[str, str]] = []

    # --- people -----------------------------------------------------------------------------------------------------

    def write(
        self,
        text: str,
        *,
        chat: int = 42,
        sender: int = 42,
        kind: str = "private",
        thread: int | None = None,
        album: str | None = None,
        photo: str | None = None,
        voice: str | None = None,
        number: int | None = None,
    ) -> str:
        """A person writes; returns the id of the message."""
        with self._lock:
            message = number or self._next_message
            self._next_message = max(self._next_message, message) + 1
            body: Json = {
                "message_id": message,
                "date": 1_800_000_000,
                "chat": {"id": chat, "type": kind, "title": "A group"},
                "from": {"id": sender, "is_bot": False, "first_name": "Ann"},
            }
            body["caption" if photo or voice else "text"] = text
            if voice is not None:
                body["voice"] = {"file_id": voice, "file_unique_id": voice, "duration": 3, "mime_type": "audio/ogg"}
            if thread is not None:
                body |= {"message_thread_id": thread, "is_topic_message": True}
            if album is not None:
                body["media_group_id"] = album
            if photo is not None:
                body["photo"] = [
                    {"file_id": photo, "file_unique_id": photo, "width": size, "height": size} for size in (90, 800)
                ]
            self._add_update({"message": body})
        return f"{chat}/{message}"

    def press(
        self, number: int, data: str, *, chat: int = 42, sender: int = 42, kind: str = "private", name: str = "Ann"
    ) -> str:
        """A person presses a button of a message, or pretends to; returns the id of the press."""
        with self._lock:
            press = f"press-{self._next_update}"
            self._add_update(
                {
                    "callback_query": {
                        "id": press,
                        "chat_instance": "1",
                        "data": data,
                        "from": {"id": sender, "is_bot": False, "first_name": name},
                        "message": {
                            "message_id": number,
                            "date": 1_800_000_000,
                            "chat": {"id": chat, "type": kind},
                            "from": BOT,
                            "text": "",
                        },
                    }
                }
            )
        return press

    def add_update(self, update: Json) -> int:
        """Anything at all arrives; returns its number."""
        with self._lock:
            return self._add_update(update)

    def _add_update(self, update: Json) -> int:
        self._updates.append(update | {"update_id": self._next_update})
        self._next_update += 1
        self._lock.notify_all()
        return self._next_update - 1

    def shown(self, beginning: str, chat: int = 42) -> Seen:
        """The last message of the bot in a chat that begins like this, as it is shown now."""
        return next(one for one in reversed(self.seen) if one.chat == chat and one.text.startswith(beginning))

    def sees(self, beginning: str, chat: int = 42) -> bool:
        """Whether a message of the bot in a chat begins like this now."""
        return any(one.chat == chat and one.text.startswith(beginning) for one in self.seen)

    @property
    def seen(self) -> list[Seen]:
        """What the people see of the bot, in order."""
        with self._lock:
            return list(self._seen)

    @property
    def drafts(self) -> dict[int, str]:
        """The drafts that people see at this moment, by chat. A message of the bot replaces them."""
        with self._lock:
            return dict(self._drafts)

    def drop_drafts(self) -> None:
        """The drafts disappear, as they do after a while."""
        with self._lock:
            self._drafts.clear()

    def written(self, chat: int = 42) -> list[tuple[int, str]]:
        """The numbers and texts of what people wrote to a chat."""
        with self._lock:
            bodies = [update["message"] for update in self._updates if "message" in update]
        return [(body["message_id"], body.get("text", "")) for body in bodies if body["chat"]["id"] == chat]

    @property
    def waiting(self) -> int:
        """How many updates the bot has not confirmed."""
        with self._lock:
            return sum(update["update_id"] > self._confirmed for update in self._updates)

    def become_supergroup(self, chat: int, new: int) -> None:
        """A group gets another id. The bot is told so, in the old group."""
        with self._lock:
            self.migrated[chat] = new
            body = {"message_id": self._next_message, "date": 1_800_000_000, "chat": {"id": chat, "type": "group"}}
            self._next_message += 1
            self._add_update({"message": body | {"migrate_to_chat_id": new}})

    def texts(self, chat: int = 42) -> list[str]:
        """The texts that the bot has sent to a chat."""
        return [seen.text for seen in self.seen if seen.chat == chat]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until the people see this."""
        with self._lock:
            assert self._lock.wait_for(condition, seconds), f"they only see {self._seen}"

    @property
    def confirmed(self) -> int:
        """Up to which update the bot has confirmed."""
        with self._lock:
            return self._confirmed

    # --- the API ----------------------------------------------------------------------------------------------------

    async def call(self, request: Request) -> Response:
        """A method of the Bot API."""
        method = request.path_params["method"]
        if request.path_params["token"] != TOKEN:
            return _failed(401, "Unauthorized")
        given: Json = dict(request.query_params)
        async with request.form() as form:
            for name, value in form.items():
                given[name] = value if isinstance(value, str) else (value.filename, await value.read())
        self._note_call(method, given)
        fault = self._fault_of(method)
        if fault in _REFUSALS:
            return _failed(*_REFUSALS[fault])
        if fault == "429":
            return _failed(429, "Too Many Requests: retry after 1", parameters={"retry_after": 1})
        if fault in ("500 before", "cut before"):
            return _failed(502, "Bad Gateway") if fault == "500 before" else _cut({})
        result = self._refused(given) or await self._done(method, given, fault)
        if isinstance(result, Response):
            return result
        if fault == "500 after":
            return _failed(502, "Bad Gateway")
        if fault == "slow":
            await asyncio.sleep(self._random.random() / 5)
        return _cut(result) if fault == "cut after" else _done(result)

    async def file(self, request: Request) -> Response:
        """The bytes of a file."""
        if self._fault_of("file") is not None:
            return _failed(502, "Bad Gateway")
        return Response(self.files[request.path_params["file"]])

    def _note_call(self, method: str, given: Json) -> None:
        if "chat_id" in given:
            with self._lock:
                self.times.append(time.monotonic())
                self.calls.append((method, int(given["chat_id"]), str(given.get("text", ""))))
                self._lock.notify_all()

    def _fault_of(self, method: str) -> Fault | None:
        with self._lock:
            if self.faults.get(method):
                return self.faults[method].popleft()
            if self._random.random() >= self.chance:
                return None
            faults: list[Fault] = ["429", "500 before", "500 after", "cut before", "cut after", "slow"]
            return self._random.choice([*faults, *_DISORDER] if method == "getUpdates" else faults)

    async def _done(self, method: str, given: Json, fault: Fault | None) -> Json | list[Json] | bool | Response:
        match method:
            case "getMe" | "getWebhookInfo" | "deleteWebhook":
                return self._about_bot(method)
            case "getUpdates":
                return await self._get_updates(given, fault)
            case "sendMessage" | "editMessageText" | "deleteMessage" | "sendMessageDraft":
                return self._change_chat(method, given)
            case "sendPhoto" | "sendDocument" | "sendVoice" | "sendAudio":
                return self._send_file(method.removeprefix("send").lower(), given)
            case "answerCallbackQuery":
                with self._lock:
                    self.answers.append((given["callback_query_id"], given.get("text", "")))
                    self._lock.notify_all()
                return True
            case "setMyCommands":
                with self._lock:
                    self.menu = json.loads(given["commands"])
                    self._lock.notify_all()
                return True
            case "getFile":
                found = given["file_id"]
                if found not in self.files:
                    return _failed(400, "Bad Request: file is too big")
                return {"file_id": found, "file_unique_id": found, "file_path": found}
            case _:
                return _failed(404, f"Not Found: {method}")

    def _about_bot(self, method: str) -> Json | bool:
        if method == "getMe":
            return BOT
        if method == "deleteWebhook":
            self.webhook = ""
            return True
        return {"url": self.webhook, "has_custom_certificate": False, "pending_update_count": self.waiting}

    async def _get_updates(self, given: Json, fault: Fault | None) -> list[Json] | Response:
        if self.webhook:
            return _failed(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(given.get("offset", 0))
        with self._lock:
            self._confirmed = 0 if fault == "forget" else max(self._confirmed, offset - 1)
            self._lock.notify_all()
        end = asyncio.get_running_loop().time() + min(float(given.get("timeout", 0)), 2.0)
        while True:
            with self._lock:
                first = 0 if fault in ("repeat", "forget") else max(offset, self._confirmed + 1)
                found = [update for update in self._updates if update["update_id"] >= first][:100]
            if found or asyncio.get_running_loop().time() >= end:
                return _disordered(found, fault)
            await asyncio.sleep(0.01)

    def _change_chat(self, method: str, given: Json) -> Json | bool | Response:
        match method:
            case "sendMessage":
                return self._send_message(given)
            case "editMessageText":
                return self._edit_message(given)
            case "deleteMessage":
                return self._delete(given)
            case _:
                return self._draft(given)

    def _refused(self, given: Json) -> Response | None:
        chat, thread = int(given.get("chat_id", 0)), given.get("message_thread_id")
        if chat in self.blocked:
            return _failed(403, "Forbidden: bot was blocked by the user")
        if chat in self.migrated:
            new = {"migrate_to_chat_id": self.migrated[chat]}
            return _failed(400, "Bad Request: group chat was upgraded to a supergroup chat", parameters=new)
        if thread is not None and int(thread) in self.dead_threads | {1}:
            return _failed(400, "Bad Request: message thread not found")
        return None

    def _send_file(self, kind: str, given: Json) -> Json | Response:
        named = given[kind]
        name, data = given[named.removeprefix("attach://")] if isinstance(named, str) else named
        if kind == "photo" and not data.startswith(b"\x89PNG"):
            return _failed(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")
        return self._show(given, given.get("caption", ""), (kind, name, data))

    def _draft(self, given: Json) -> bool | Response:
        if int(given["chat_id"]) < 0 or not int(given["draft_id"]):
            return _failed(400, "Bad Request: DRAFT_INVALID")
        with self._lock:
            self._drafts[int(given["chat_id"])] = given["text"]
            self._lock.notify_all()
        return True

    def _delete(self, given: Json) -> bool | Response:
        chat, number = int(given["chat_id"]), int(given["message_id"])
        with self._lock:
            kept = [one for one in self._seen if (one.chat, one.number) != (chat, number)]
            if len(kept) == len(self._seen):
                return _failed(400, "Bad Request: message to delete not found")
            self._seen = kept
            self._lock.notify_all()
        return True

    def _send_message(self, given: Json) -> Json | Response:
        if not given["text"]:
            return _failed(400, "Bad Request: message text is empty")
        plain = html.unescape(re.sub(r"<[^>]*>", "", given["text"])) if given.get("parse_mode") else given["text"]
        if len(plain.encode("utf-16-le", "surrogatepass")) > 2 * 4096:
            return _failed(400, "Bad Request: message is too long")
        buttons = _buttons_in(given)
        if any(not 1 <= len(data.encode()) <= 64 for _, data in buttons):
            return _failed(400, "Bad Request: BUTTON_DATA_INVALID")
        return self._show(given, given["text"])

    def _show(self, given: Json, text: str, file: tuple[str, str, bytes] | None = None) -> Json:
        chat, thread = int(given["chat_id"]), given.get("message_thread_id")
        with self._lock:
            number, self._next_message = self._next_message, self._next_message + 1
            shown = Seen(
                chat,
                text,
                None if thread is None else int(thread),
                given.get("parse_mode"),
                number,
                _buttons_in(given),
                file,
                given.get("disable_notification") == "true",
            )
            self._seen.append(shown)
            self._drafts.pop(chat, None)
            self._lock.notify_all()
        return _message(chat, number, text)

    def _edit_message(self, given: Json) -> Json | Response:
        chat, number, text, buttons = int(given["chat_id"]), int(given["message_id"]), given["text"], _buttons_in(given)
        with self._lock:
            found = [at for at, one in enumerate(self._seen) if (one.chat, one.number) == (chat, number)]
            if not found:
                return _failed(400, "Bad Request: message to edit not found")
            before = self._seen[found[0]]
            if (before.text, before.buttons) == (text, buttons):
                return _failed(400, "Bad Request: message is not modified: specified new message content is the same")
            self._seen[found[0]] = replace(before, text=text, mode=given.get("parse_mode"), buttons=buttons)
            self._lock.notify_all()
        return _message(chat, number, text)


def _disordered(updates: list[Json], fault: Fault | None) -> list[Json]:
    if fault == "reorder":
        return updates[::-1]
    return [*updates, *updates] if fault == "duplicate" else updates


def _buttons_in(given: Json) -> tuple[tuple[str, str], ...]:
    rows = json.loads(given.get("reply_markup") or '{"inline_keyboard": []}')["inline_keyboard"]
    return tuple((button["text"], button["callback_data"]) for row in rows for button in row)


def _message(chat: int, number: int, text: str) -> Json:
    return {
        "message_id": number,
        "date": 1_800_000_000,
        "chat": {"id": chat, "type": "private"},
        "from": BOT,
        "text": text,
    }


def _failed(status: int, description: str, **more: object) -> Response:
    return JSONResponse({"ok": False, "error_code": status, "description": description, **more}, status_code=status)


def _done(result: object) -> Response:
    # Like the real one, with every other character escaped: halves of characters pass.
    return Response(json.dumps({"ok": True, "result": result}), media_type="application/json")


def _cut(result: object) -> Response:
    """An answer that ends before its announced length."""
    body = json.dumps({"ok": True, "result": result}).encode()
    return Response(body[: len(body) // 2], headers={"content-length": str(len(body))}, media_type="application/json")


@contextmanager
def fake_telegram(**options: Any) -> Iterator[FakeTelegram]:  # Any: the fields of the fake
    """A fake that answers on a port of its own, in a thread."""
    fake = FakeTelegram(**options)
    app = Starlette(
        routes=[
            Route("/bot{token}/{method}", fake.call, methods=["GET", "POST"]),
            Route("/file/bot{token}/{file}", fake.file),
        ]
    )
    with served(app) as fake.url:
        yield fake


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """The address of an application that answers on a port of its own, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
