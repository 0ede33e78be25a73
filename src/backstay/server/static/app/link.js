// The link: one stream for the list and the open session. It comes back by itself, and goes on where it was.
import { signal } from "../vendor/page.js";
import { get, unknown } from "./api.js";

/** connecting · live · lost · stranger; and since when. */
export const connection = signal({ state: "connecting", since: Date.now() });

const KINDS = ["story", "listed", "unlisted", "snapshot", "resync"];
let source = null;
let wanted = null;
let last = "";
let hear = () => {};
let again = 0;

/** Follow the list and perhaps one session from an event on; `heard` is given each frame's name and data.
 *  `afresh`: what was heard before is forgotten, the list included. */
export function follow(session, number, heard, { afresh = false } = {}) {
  wanted = session ? `${session}:${number}` : "";
  if (afresh) last = "";
  hear = heard;
  connect();
}

/** Let go of the stream while nobody looks; `connect` goes on where it was. */
export function rest() {
  source?.close();
  source = null;
}

/** Listen again after a rest, or if we were signed in again meanwhile. */
export function wake() {
  if (!source || connection.value.state === "stranger") connect();
}

/** Open the stream, from the last place that was heard. */
export function connect() {
  clearTimeout(again);
  source?.close();
  const query = new URLSearchParams({ feed: "true", ...(wanted && { sessions: wanted }), ...(last && { after: last }) });
  const here = (source = new EventSource(`/api/events?${query}`));
  here.onopen = () => source === here && become("live");
  here.onerror = () => source === here && lost();
  for (const kind of KINDS) here.addEventListener(kind, (frame) => source === here && take(kind, frame));
}

function take(kind, frame) {
  if (frame.lastEventId) last = frame.lastEventId;
  hear(kind, JSON.parse(frame.data));
}

// A cable that was pulled ends no stream: without this the page would seem to hear until the system gives up.
addEventListener("offline", () => source && lost());
addEventListener("online", () => connection.value.state === "lost" && connect());

/** A browser gives up on a stream that was refused; we do not, unless it is because nobody knows us any more. */
async function lost() {
  source?.close();
  become("lost");
  await get("/api/me").catch(() => {});
  if (connection.value.state === "stranger") return;
  clearTimeout(again);
  again = setTimeout(connect, 700);
}

// Whoever is told so first: a stream notices later.
unknown.subscribe((times) => {
  if (!times) return;
  clearTimeout(again);
  source?.close();
  become("stranger");
});

function become(state) {
  if (connection.value.state !== state) connection.value = { state, since: Date.now() };
}
