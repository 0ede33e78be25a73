// The room: the session that is open. Its story changes by `reduce` alone; frames are gathered until the next picture,
// which takes a helping of them.
import { batch, computed, signal } from "../vendor/page.js";
import { get, put } from "./api.js";
import { countOf, piecesOf, sizeAfter } from "./helping.js";
import { connection, follow } from "./link.js";
import { attempt, tell } from "./notices.js";
import * as passages from "./passage.js";
import { join, open, prepend, reduce } from "./reduce.js";
import { hearLine, lines, noteRead } from "./shelf.js";

const PAGE = 60;

export const current = signal(null);
export const story = signal(null);
export const trouble = signal(null);
/** A point in time that is looked at instead of now: a window of the lineage, and the story it tells. */
export const past = signal(null);
/** What is read far above the end, with everything between still to be read; the end goes on meanwhile. */
export const passage = signal(null);
/** Grows when the reader is taken somewhere else in the session, and not when they read on. */
export const leap = signal(0);
/** What to bring into view once it is drawn: a turn that was searched for, and the words in it. */
export const target = signal(null);
export const recovery = signal(null);
export const line = computed(() => (current.value ? lines.value.byId.get(current.value) : null));

// What changes seldom in a story: who draws only this is left alone while an answer grows.
const NOBODY = [];
export const running = computed(() => story.value?.running ?? null);
export const waiting = computed(() => story.value?.waiting ?? NOBODY);
export const cancelling = computed(() => Boolean(story.value?.cancelling));
export const closed = computed(() => Boolean(story.value?.closed));
export const opened = computed(() => story.value?.session ?? null);
export const empty = computed(() => !story.value?.entries.length && !waiting.value.length && !past.value);

let pending = [];
let helping = 512;
let drawing = 0;
let opening = 0;
let lostAt = null;

/** Open a session, or none; with a message to show, the page of it that has the message. `afresh`: see `follow`.
 *  `again`: it is tried once more, and the reader knows why. */
export async function enter(id, message = null, { afresh = false, again = false } = {}) {
  const visit = (opening += 1);
  if (reading) tellRead();
  pending = [];
  lostAt = null;
  batch(() => {
    current.value = id;
    past.value = passage.value = target.value = recovery.value = null;
    if (!again) trouble.value = null;
    if (story.value?.session !== id) story.value = null;
  });
  if (!id) return follow(null, 0, hear);
  try {
    const chapter = await get(`/api/sessions/${id}/chapter`, { last: PAGE });
    if (visit !== opening) return;
    trouble.value = null;
    story.value = open(chapter);
    hearLine("listed", chapter.session);
    follow(id, chapter.session.last_event, hear, { afresh });
    markRead();
  } catch (error) {
    if (visit !== opening) return;
    trouble.value = error;
    if (error.unreachable) setTimeout(() => visit === opening && enter(id, message, { again: true }), 2000);
    if (!again) follow(null, 0, hear);
    return;
  }
  // What is not there is no reason to hide what is.
  if (message) attempt(() => show(message));
}

/** Read the session anew where events do not tell what stands there; what is shown stays until it is here. */
async function renew() {
  const visit = opening;
  const chapter = await get(`/api/sessions/${current.value}/chapter`, { last: PAGE }).catch(() => null);
  if (visit !== opening) return;
  if (!chapter) return void setTimeout(renew, 500);
  story.value = open(chapter);
  // What was told while it was read is not in it, perhaps.
  soon();
}

function hear(kind, data) {
  if (kind === "listed" || kind === "unlisted" || data.feed) return hearLine(kind, data);
  if (kind === "story") pending.push(...piecesOf(data));
  // What was seen is folded, or lost: what follows is told from somewhere else.
  else pending.push({ session: data.session, last: Infinity, body: { kind: "gap" } });
  soon();
}

function soon() {
  if (!drawing) drawing = document.hidden ? setTimeout(draw, 100) : requestAnimationFrame(draw);
}

function draw() {
  drawing = 0;
  if (!story.value || story.value.stale) return;
  const events = pending.filter((event) => event.session === current.value);
  if (events.some((event) => event.body.kind === "gap")) return enter(current.value, null, { afresh: true });
  const began = performance.now();
  const count = document.hidden ? events.length : countOf(events, helping);
  const next = events.slice(0, count).reduce(reduce, story.value);
  if (next.stale) {
    // What is shown stays, and what is told waits, until a chapter says how it is.
    story.value = { ...story.value, stale: true };
    return renew();
  }
  pending = events.slice(count);
  story.value = next;
  // The views are drawn in a microtask that was asked for just now.
  queueMicrotask(() => (helping = sizeAfter(helping, performance.now() - began)));
  if (pending.length) return soon();
  markRead();
  recovered();
}

/** What is looked at: a point in time, what is read far above, or now. */
const shown = () => past.value?.story ?? passage.value?.story ?? story.value;
const topOf = ({ session, top }) => `${session} ${top.window} ${top.position}`;

let asked = null;

/** Load what stands above; through a summary into what it stands for. */
export async function older() {
  const here = shown() && topOf(shown());
  const place = here && above(shown().top);
  if (!place || asked === here) return;
  asked = here;
  try {
    const chapter = await get(`/api/sessions/${shown().session}/chapter`, { ...place, last: PAGE });
    // It belongs above what was looked at then, and above nothing else.
    if (!shown() || topOf(shown()) !== here) return;
    if (past.value) past.value = { ...past.value, story: prepend(past.value.story, chapter) };
    else if (passage.value) passage.value = passages.above(passage.value, chapter);
    else story.value = prepend(story.value, chapter);
  } catch (error) {
    tell(error);
  } finally {
    if (asked === here) asked = null;
  }
}

/** Where the page above begins, or nothing if there is none. */
export function above(top) {
  if (top.position > 0) return { window: top.window, before: top.position };
  return top.behind ? { window: top.behind, before: top.behindUntil } : null;
}

let sought = {};

/** The words for which a message was found: they are marked when it is shown. */
export const seek = (message, words) => (sought = { message, words });

/** Bring a message into view, with what stands around it; from there the session is read on in both directions. */
export async function show(message) {
  const session = current.value;
  const words = sought.message === message ? sought.words : [];
  const chapter = await get(`/api/sessions/${session}/chapter`, { around: message, last: PAGE });
  if (current.value !== session || !story.value) return;
  const turn = chapter.messages.find(({ id }) => id === message)?.turn;
  const drawn = past.value ? [] : shown().entries;
  batch(() => {
    if (!drawn.some((entry) => entry.turn === turn)) {
      past.value = null;
      passage.value = passages.begin(chapter, story.value.top);
      leap.value += 1;
    }
    target.value = { turn, words, at: Date.now() };
  });
}

/** Load what stands below a passage; where it meets the end of the session, both are one and live. */
export async function newer() {
  const session = current.value;
  if (newer.busy || !passage.value) return;
  newer.busy = true;
  const here = leap.value;
  try {
    const { windows } = await get(`/api/sessions/${session}/lineage`);
    const chain = () => passages.chainOf(windows, story.value.window);
    const place = passages.next(passage.value, story.value.top, chain(), PAGE);
    const chapter = place && (await get(`/api/sessions/${session}/chapter`, place));
    if (current.value !== session || leap.value !== here || !passage.value) return;
    if (chapter) passage.value = passages.below(passage.value, chapter, place);
    if (passages.meets(passage.value, story.value.top, chain())) goOn();
  } catch (error) {
    tell(error);
  } finally {
    newer.busy = false;
  }
}

function goOn() {
  batch(() => {
    story.value = join(passage.value.story, story.value);
    passage.value = null;
  });
}

/** Leave what is read far above for the end of the session. */
export function toNow() {
  if (!passage.value) return;
  batch(() => {
    passage.value = target.value = null;
    leap.value += 1;
  });
}

/** Look at the session as it was in a window, or in the part of it before a position. */
export async function lookBack(window, why, before = null) {
  const chapter = await get(`/api/sessions/${current.value}/chapter`, { window, before, last: PAGE });
  past.value = { window, why, story: open(asItWas(chapter)) };
}

/** A chapter without what goes on now. */
const asItWas = (chapter) => ({
  ...chapter,
  said: [],
  unheard: [],
  waiting: [],
  turns: chapter.turns.filter(({ state }) => state === "ended"),
});

let reading = 0;
document.addEventListener("visibilitychange", () => story.value && markRead());

function markRead() {
  clearTimeout(reading);
  if (!document.hidden) reading = setTimeout(tellRead, 600);
}

/** Say that what is shown was read. */
function tellRead() {
  const { session, number } = story.value ?? {};
  clearTimeout(reading);
  reading = 0;
  if (!session || document.hidden) return;
  noteRead(session, Math.floor(number));
  put(`/api/sessions/${session}/read`, { number: Math.floor(number) }).catch(() => {});
}

// --- what happened while nobody could tell us ---------------------------------------------------------------------------

connection.subscribe(({ state }) => {
  if (state === "lost" && story.value && lostAt === null) lostAt = { number: Math.floor(story.value.number), head: Infinity };
  if (state === "live" && lostAt) measure(lostAt);
});

/** Learn how far the story goes by now; when we are there too, we can say what became of it. */
async function measure(lost) {
  const session = await get(`/api/sessions/${current.value}`).catch(() => null);
  if (!session || lostAt !== lost) return;
  lost.head = session.last_event;
  recovered();
}

function recovered() {
  if (!lostAt || !story.value || story.value.number < lostAt.head) return;
  const { number } = lostAt;
  lostAt = null;
  const cut = story.value.entries.filter((entry) => entry.outcome?.type === "interrupted").at(-1);
  const fresh = cut && cut === story.value.entries.at(-1);
  recovery.value = { steps: Math.floor(story.value.number) - number, cut: fresh ? cut.turn : null, at: Date.now() };
}
