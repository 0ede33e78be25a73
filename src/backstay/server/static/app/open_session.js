// The open session. Its state changes only by `reduce`; events are collected until the next animation frame, which
// renders a portion of them.
import { batch, computed, signal } from "../vendor/page.js";
import { get, put } from "./api.js";
import { countOf, piecesOf, sizeAfter } from "./event_batches.js";
import { connection, follow } from "./event_stream.js";
import { attempt, showNotice } from "./notices.js";
import * as passages from "./passage.js";
import { join, open, prepend, reduce } from "./reduce.js";
import { applyListFrame, noteRead, sessionList } from "./session_list.js";

const PAGE = 60;

export const current = signal(null);
export const sessionState = signal(null);
export const openError = signal(null);
/** An earlier point in time that is shown instead of the present: a window of the lineage and its state. */
export const past = signal(null);
/** A passage far above the end, not yet connected with it; the end keeps receiving events. */
export const passage = signal(null);
/** Incremented when the view jumps to another place in the session, but not when the reader scrolls. */
export const jumpCount = signal(0);
/** What to scroll to after rendering: the turn of a search result, and the words to highlight. */
export const target = signal(null);
export const recovery = signal(null);
export const currentSession = computed(() => (current.value ? sessionList.value.byId.get(current.value) : null));

// Values that change rarely: views that use only these do not render again while an answer grows.
const NONE = [];
export const running = computed(() => sessionState.value?.running ?? null);
export const waiting = computed(() => sessionState.value?.waiting ?? NONE);
export const cancelling = computed(() => Boolean(sessionState.value?.cancelling));
export const closed = computed(() => Boolean(sessionState.value?.closed));
export const opened = computed(() => sessionState.value?.session ?? null);
export const empty = computed(() => !sessionState.value?.entries.length && !waiting.value.length && !past.value);

let pending = [];
let batchSize = 512;
let frame = 0;
let openings = 0;
let lostAt = null;

/** Open a session, or none; with `message`, show that message. `afresh`: see `follow`.
 *  `again`: this is a retry, and the error is already shown. */
export async function openSession(id, message = null, { afresh = false, again = false } = {}) {
  const attemptNumber = (openings += 1);
  if (readTimer) sendReadMark();
  pending = [];
  lostAt = null;
  batch(() => {
    current.value = id;
    past.value = passage.value = target.value = recovery.value = null;
    if (!again) openError.value = null;
    if (sessionState.value?.session !== id) sessionState.value = null;
  });
  if (!id) return follow(null, 0, receive);
  try {
    const snapshot = await get(`/api/sessions/${id}/snapshot`, { last: PAGE });
    if (attemptNumber !== openings) return;
    openError.value = null;
    sessionState.value = open(snapshot);
    applyListFrame("listed", snapshot.session);
    follow(id, snapshot.session.last_event, receive, { afresh });
    scheduleReadMark();
  } catch (error) {
    if (attemptNumber !== openings) return;
    openError.value = error;
    if (error.unreachable) setTimeout(() => attemptNumber === openings && openSession(id, message, { again: true }), 2000);
    if (!again) follow(null, 0, receive);
    return;
  }
  // Show the session even if the message does not exist.
  if (message) attempt(() => show(message));
}

/** Load a new snapshot where the events are not enough; the current view stays until it arrives. */
async function reloadSnapshot() {
  const attemptNumber = openings;
  const snapshot = await get(`/api/sessions/${current.value}/snapshot`, { last: PAGE }).catch(() => null);
  if (attemptNumber !== openings) return;
  if (!snapshot) return void setTimeout(reloadSnapshot, 500);
  sessionState.value = open(snapshot);
  // Events that arrived during the request may be missing from the snapshot.
  scheduleDraw();
}

function receive(kind, data) {
  if (kind === "listed" || kind === "unlisted" || data.feed) return applyListFrame(kind, data);
  if (kind === "event") pending.push(...piecesOf(data));
  // The server no longer has the events after our cursor: they were folded or lost.
  else pending.push({ session: data.session, last: Infinity, body: { kind: "gap" } });
  scheduleDraw();
}

function scheduleDraw() {
  if (!frame) frame = document.hidden ? setTimeout(draw, 100) : requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  if (!sessionState.value || sessionState.value.stale) return;
  const events = pending.filter((event) => event.session === current.value);
  if (events.some((event) => event.body.kind === "gap")) return openSession(current.value, null, { afresh: true });
  const began = performance.now();
  const count = document.hidden ? events.length : countOf(events, batchSize);
  const next = events.slice(0, count).reduce(reduce, sessionState.value);
  if (next.stale) {
    // Keep the current view and hold the events back until a new snapshot arrives.
    sessionState.value = { ...sessionState.value, stale: true };
    return reloadSnapshot();
  }
  pending = events.slice(count);
  sessionState.value = next;
  // The views render in a microtask that was queued just now: measure after it.
  queueMicrotask(() => (batchSize = sizeAfter(batchSize, performance.now() - began)));
  if (pending.length) return scheduleDraw();
  scheduleReadMark();
  reportRecovery();
}

/** The state that is shown: a point in time, a passage, or the present. */
const shown = () => past.value?.state ?? passage.value?.state ?? sessionState.value;
const topOf = ({ session, top }) => `${session} ${top.window} ${top.position}`;

let loadingAbove = null;

/** Load the messages above; beyond a summary, those that it summarises. */
export async function older() {
  const here = shown() && topOf(shown());
  const place = here && above(shown().top);
  if (!place || loadingAbove === here) return;
  loadingAbove = here;
  try {
    const snapshot = await get(`/api/sessions/${shown().session}/snapshot`, { ...place, last: PAGE });
    // Drop the response if the reader has moved on: it belongs above the position of the request only.
    if (!shown() || topOf(shown()) !== here) return;
    if (past.value) past.value = { ...past.value, state: prepend(past.value.state, snapshot) };
    else if (passage.value) passage.value = passages.above(passage.value, snapshot);
    else sessionState.value = prepend(sessionState.value, snapshot);
  } catch (error) {
    showNotice(error);
  } finally {
    if (loadingAbove === here) loadingAbove = null;
  }
}

/** The query for the page above; null if there is none. */
export function above(top) {
  if (top.position > 0) return { window: top.window, before: top.position };
  return top.summarises ? { window: top.summarises, before: top.summarisesUntil } : null;
}

let sought = {};

/** Remember the words of a search result, to highlight them when its message is shown. */
export const seek = (message, words) => (sought = { message, words });

/** Show a message and its surroundings; from there, the reader can scroll in both directions. */
export async function show(message) {
  const session = current.value;
  const words = sought.message === message ? sought.words : [];
  const snapshot = await get(`/api/sessions/${session}/snapshot`, { around: message, last: PAGE });
  if (current.value !== session || !sessionState.value) return;
  const turn = snapshot.messages.find(({ id }) => id === message)?.turn;
  const drawn = past.value ? [] : shown().entries;
  batch(() => {
    if (!drawn.some((entry) => entry.turn === turn)) {
      past.value = null;
      passage.value = passages.begin(snapshot, sessionState.value.top);
      jumpCount.value += 1;
    }
    target.value = { turn, words, at: Date.now() };
  });
}

/** Load the messages below a passage; where it meets the end of the session, both are joined. */
export async function newer() {
  const session = current.value;
  if (newer.busy || !passage.value) return;
  newer.busy = true;
  const here = jumpCount.value;
  try {
    const { windows } = await get(`/api/sessions/${session}/lineage`);
    const chain = () => passages.chainOf(windows, sessionState.value.window);
    const place = passages.next(passage.value, sessionState.value.top, chain(), PAGE);
    const snapshot = place && (await get(`/api/sessions/${session}/snapshot`, place));
    if (current.value !== session || jumpCount.value !== here || !passage.value) return;
    if (snapshot) passage.value = passages.below(passage.value, snapshot, place);
    if (passages.meets(passage.value, sessionState.value.top, chain())) joinPassage();
  } catch (error) {
    showNotice(error);
  } finally {
    newer.busy = false;
  }
}

function joinPassage() {
  batch(() => {
    sessionState.value = join(passage.value.state, sessionState.value);
    passage.value = null;
  });
}

/** Leave the passage and return to the end of the session. */
export function showPresent() {
  if (!passage.value) return;
  batch(() => {
    passage.value = target.value = null;
    jumpCount.value += 1;
  });
}

/** Show the session as it was in a window, or in the part of it before a position. */
export async function showWindow(window, why, before = null) {
  const snapshot = await get(`/api/sessions/${current.value}/snapshot`, { window, before, last: PAGE });
  past.value = { window, why, state: open(withoutOpenTurns(snapshot)) };
}

/** A snapshot without its running and waiting turns. */
const withoutOpenTurns = (snapshot) => ({
  ...snapshot,
  output: [],
  pending_steering: [],
  waiting: [],
  turns: snapshot.turns.filter(({ state }) => state === "ended"),
});

let readTimer = 0;
document.addEventListener("visibilitychange", () => sessionState.value && scheduleReadMark());

function scheduleReadMark() {
  clearTimeout(readTimer);
  if (!document.hidden) readTimer = setTimeout(sendReadMark, 600);
}

/** Mark the events that are shown as read. */
function sendReadMark() {
  const { session, number } = sessionState.value ?? {};
  clearTimeout(readTimer);
  readTimer = 0;
  if (!session || document.hidden) return;
  noteRead(session, Math.floor(number));
  put(`/api/sessions/${session}/read`, { number: Math.floor(number) }).catch(() => {});
}

// --- recovery after a lost connection --------------------------------------------------------------------------------

connection.subscribe(({ state }) => {
  if (state === "lost" && sessionState.value && lostAt === null) lostAt = { number: Math.floor(sessionState.value.number), head: Infinity };
  if (state === "live" && lostAt) readLogEnd(lostAt);
});

/** Read how far the event log goes by now; the recovery is reported when the state has reached that event. */
async function readLogEnd(lost) {
  const session = await get(`/api/sessions/${current.value}`).catch(() => null);
  if (!session || lostAt !== lost) return;
  lost.head = session.last_event;
  reportRecovery();
}

function reportRecovery() {
  if (!lostAt || !sessionState.value || sessionState.value.number < lostAt.head) return;
  const { number } = lostAt;
  lostAt = null;
  const cut = sessionState.value.entries.filter((entry) => entry.outcome?.type === "interrupted").at(-1);
  const fresh = cut && cut === sessionState.value.entries.at(-1);
  recovery.value = { steps: Math.floor(sessionState.value.number) - number, cut: fresh ? cut.turn : null, at: Date.now() };
}
