// The connection: one event stream for the session list and the open session. It reconnects and resumes by itself.
import { signal } from "../vendor/page.js";
import { get, signedOut } from "./api.js";

/** The state (connecting, live, lost or signed-out) and since when. */
export const connection = signal({ state: "connecting", since: Date.now() });

const KINDS = ["event", "listed", "unlisted", "snapshot", "resync"];
let source = null;
let followed = null;
let cursor = "";
let onFrame = () => {};
let retryTimer = 0;

/** Follow the list, and optionally a session after an event. `onFrame` is called with the name and data of each frame.
 *  `afresh`: discard the stored cursor, including that of the list. */
export function follow(session, number, handler, { afresh = false } = {}) {
  followed = session ? `${session}:${number}` : "";
  if (afresh) cursor = "";
  onFrame = handler;
  connect();
}

/** Close the stream while the tab is not visible; `connect` resumes it. */
export function disconnect() {
  source?.close();
  source = null;
}

/** Reconnect after `disconnect`, or after the browser was signed in again. */
export function reconnect() {
  if (!source || connection.value.state === "signed-out") connect();
}

/** Open the stream at the last received cursor. */
export function connect() {
  clearTimeout(retryTimer);
  source?.close();
  const query = new URLSearchParams({ feed: "true", ...(followed && { sessions: followed }), ...(cursor && { after: cursor }) });
  const here = (source = new EventSource(`/api/events?${query}`));
  here.onopen = () => source === here && setState("live");
  here.onerror = () => source === here && lost();
  for (const kind of KINDS) here.addEventListener(kind, (frame) => source === here && receive(kind, frame));
}

function receive(kind, frame) {
  if (frame.lastEventId) cursor = frame.lastEventId;
  onFrame(kind, JSON.parse(frame.data));
}

// A pulled cable does not end a stream: without this, the web UI would look connected until the system times out.
addEventListener("offline", () => source && lost());
addEventListener("online", () => connection.value.state === "lost" && connect());

/** Browsers stop reconnecting after an error response. We continue, unless this browser is no longer signed in. */
async function lost() {
  source?.close();
  setState("lost");
  await get("/api/me").catch(() => {});
  if (connection.value.state === "signed-out") return;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, 700);
}

// Any request can detect that the browser is signed out, often before the stream does.
signedOut.subscribe((times) => {
  if (!times) return;
  clearTimeout(retryTimer);
  source?.close();
  setState("signed-out");
});

function setState(state) {
  if (connection.value.state !== state) connection.value = { state, since: Date.now() };
}
