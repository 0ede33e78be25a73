"""Sessions recorded from a real server: everything that can happen in one, with snapshots at many moments."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx2

from backstay.model.content import Body, Custom, Text, Thought, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, Interrupted
from backstay.store import open_store
from tests.server.api_calls import accepted, log_of, new_session, until, until_said
from tests.server.running_server import RunningServer

JsonObject = dict[str, Any]
ME = "local"


class Recording:
    """One session, and its snapshots."""

    def __init__(self, server: RunningServer, client: httpx2.Client) -> None:
        self._house, self.client = server, client
        self.session = SessionId(new_session(client))
        self.database = server.settings.db
        self.snapshots: list[JsonObject] = []
        self.look()

    def look(self) -> JsonObject:
        """Read a snapshot now."""
        snapshot = self.page(last=1000)
        if not self.snapshots or self.snapshots[-1]["session"]["last_event"] < snapshot["session"]["last_event"]:
            self.snapshots.append(snapshot)
        return snapshot

    def page(self, **query: str | int) -> JsonObject:
        """A snapshot from this position."""
        found: JsonObject = self.client.get(f"/api/sessions/{self.session}/snapshot", params=query).json()
        return found

    def ask(self, text: str, **more: Any) -> str:
        """Send a message, and read snapshots as often as possible until it is answered."""
        turn = accepted(self.client, self.session, text, **more)
        self.watch(lambda: self.look()["session"]["running"] is None)
        return turn

    def say(self, text: str, **more: Any) -> str:
        """Send a message and do not wait."""
        turn = accepted(self.client, self.session, text, **more)
        self.look()
        return turn

    def watch(self, over: Callable[[], bool]) -> None:
        """Read snapshots until the condition holds."""
        until(over, "the turn ended")

    def post(self, path: str, **more: Any) -> JsonObject:
        """Send a request, and read a snapshot."""
        answer = self.client.post(f"/api/{path}", **more)
        assert answer.status_code < 300, answer.text
        self.look()
        found: JsonObject = answer.json()
        return found

    def replay(self, name: str, size: int = 3) -> JsonObject:
        """The recording to replay: the snapshots, the whole log, and the session in small pages, newest first."""
        self.look()
        pages = [self.page(last=size)]
        while pages[-1]["messages"] and pages[-1]["messages"][0]["position"]:
            first = pages[-1]["messages"][0]["position"]
            pages.append(self.page(last=size, before=first, window=pages[-1]["window"]))
        events = log_of(self._house, self.client, self.session)
        return {"name": name, "snapshots": self.snapshots, "events": events, "pages": pages}


def a_plain_talk(recording: Recording) -> JsonObject:
    """Text, thoughts, tools, a failure, a long answer."""
    recording.ask("hello")
    recording.ask("think of nothing in particular\ncalc 2+3*4\ntool clock\nusage")
    recording.ask("long 8")
    recording.ask("fail no network")
    recording.client.patch(f"/api/sessions/{recording.session}", json={"title": "Tea", "add_tags": ["x"]})
    recording.ask("calc 1/0\ncalc 1+1\nslow 5")
    return recording.replay("a plain talk")


def a_crowded_talk(recording: Recording) -> JsonObject:
    """A queue, steering, a cancelled turn, one that replaces, one that needs approval; recorded messages."""
    running = recording.say("a", agent="patient")
    until_said(recording.client, recording.session, "listening ")
    recording.look()
    first, second = recording.say("queued 1"), recording.say("queued 2")
    third = recording.say("never mind")
    recording.client.patch(f"/api/turns/{first}", json={"text": "queued 1, edited"})
    recording.look()
    recording.client.put(f"/api/sessions/{recording.session}/waiting", json={"turns": [third, second, first]})
    recording.look()
    recording.client.delete(f"/api/turns/{third}")
    recording.look()
    recording.post(f"sessions/{recording.session}/steer", json={"text": "louder"})
    until_said(recording.client, recording.session, "heard louder ")
    recording.look()
    recording.post(f"turns/{running}/cancel")
    recording.watch(lambda: recording.look()["session"]["waiting"] == 0)
    recording.watch(lambda: recording.look()["session"]["running"] is None)
    asking = recording.say("ask May I?")
    recording.watch(lambda: bool(recording.look()["calls"]))
    call = recording.look()["calls"][0]["call"]
    recording.client.put(f"/api/turns/{asking}/calls/{call}/decision", json={"approved": True})
    recording.watch(lambda: recording.look()["session"]["running"] is None)
    said = [{"role": role, "parts": [{"type": "text", "text": f"{role} elsewhere"}]} for role in ("user", "assistant")]
    recording.post(f"sessions/{recording.session}/record", json={"messages": said})
    return recording.replay("a crowded talk")


def a_rewritten_talk(recording: Recording) -> JsonObject:
    """Undo, redo, retry, edit: the window changes, and a snapshot shows the new one each time."""
    for text in ("one", "two", "three"):
        recording.ask(text)
    recording.post(f"sessions/{recording.session}/undo")
    recording.post(f"sessions/{recording.session}/redo")
    recording.post(f"sessions/{recording.session}/retry", json={})
    recording.watch(lambda: recording.look()["session"]["running"] is None)
    message = recording.look()["messages"][2]["id"]
    recording.post(f"sessions/{recording.session}/messages/{message}/edit", json={"text": "two, edited"})
    recording.watch(lambda: recording.look()["session"]["running"] is None)
    recording.ask("four")
    return recording.replay("a rewritten talk")


def a_juggled_talk(recording: Recording) -> JsonObject:
    """Several tools at once, begun and ended in another order, and steering while they run."""
    with open_store(recording.database) as store:
        proof = store.submit(recording.session, "juggle", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        steps: tuple[tuple[str, Sequence[Body]], ...] = (
            ("", [Text("Three balls. "), ToolCall("c1", "throw"), ToolCall("c2", "throw", {"how": "high"})]),
            ("a fourth", []),
            ("", [ToolResult("c1", "caught")]),
            ("", [Text("Meanwhile. "), ToolCall("c3", "throw")]),
            ("a fifth", [Thought("hm")]),
            ("", [ToolResult("c2", "dropped", error=True)]),
            ("", [Custom("applause", {"hands": 2})]),
            ("", [ToolResult("c3", "caught"), Text("All of them. ")]),
            ("and bow", [Text("Thank you. "), ToolCall("c4", "bow", client=True)]),
        )
        for steering, bodies in steps:
            if steering:
                store.submit(recording.session, steering, owner=ME, if_busy="steer")
                recording.look()
            proof = store.checkpoint(proof, bodies, take_steering=True).open
            recording.look()
        store.finish(proof, Completed())
    return recording.replay("a juggled talk")


def a_resumed_talk(recording: Recording) -> JsonObject:
    """A turn that is interrupted with calls of every kind, is resumed, and makes them again."""
    asking = ToolCall("c3", "mail", {"to": "kit"}, approval=True)
    with open_store(recording.database) as store:
        proof = store.submit(recording.session, "go", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        calls: list[Body] = [
            ToolCall("c1", "look"),
            ToolCall("c2", "pay"),
            asking,
            ToolCall("c4", "look"),
            ToolResult("c1", "seen"),
        ]
        proof = store.checkpoint(proof, calls).open
        recording.look()
        store.finish(proof, Interrupted("its process died"))
        recording.look()
        store.approve(proof.id, "c3", owner=ME)
        recording.look()
        store.approve(proof.id, "c4", owner=ME, run_again=True)
        recording.look()
        proof = store.resume(proof.id, owner=ME)
        recording.look()
        again = ((1, ToolCall("c1", "pay", idempotent=True)), (2, asking), (3, ToolCall("c9", "look")))
        for place, call in again:
            proof = store.checkpoint(proof, [call], repeats={call.id: place}).open
            recording.look()
            proof = store.checkpoint(proof, [ToolResult(call.id, "done")]).open
            recording.look()
        store.finish(proof, Completed(), bodies=[Text("All done.")])
    return recording.replay("a resumed talk")


def an_imported_talk(recording: Recording) -> JsonObject:
    """Imported turns are held; one is released, one edited and withdrawn."""
    with open_store(recording.database) as store:
        for text in ("one", "two", "three"):
            store.submit(recording.session, text, owner=ME, agent="elsewhere")
    document = recording.client.get(f"/api/sessions/{recording.session}/export").content
    lines = {"content-type": "application/x-ndjson"}
    imported = recording.client.post("/api/imports", content=document, headers=lines).json()
    recording.session, recording.snapshots = SessionId(imported["session"]["id"]), []
    recording.look()
    one, two, _ = imported["held"]
    recording.client.patch(f"/api/turns/{two}", json={"text": "two, edited"})
    recording.look()
    recording.post(f"turns/{one}/release")
    recording.client.delete(f"/api/turns/{two}")
    return recording.replay("an imported talk")


RECORDINGS = (a_plain_talk, a_crowded_talk, a_rewritten_talk, a_juggled_talk, a_resumed_talk, an_imported_talk)
