// Drafts: the unsent text of each session, stored by the server for other tabs and for after a restart.
import { signal } from "../vendor/page.js";
import { get, request } from "./api.js";

const WAIT = 400;
// Browsers send at most 64 KB in requests that outlive the page.
const KEEPALIVE_LENGTH = 16_000;
const texts = signal(new Map());
/** The sessions whose draft the server does not have yet, each with the timer that will send it. */
const timers = new Map();

/** The draft of a session. */
export const draftOf = (session) => texts.value.get(session) ?? "";

/** Change a draft; it is sent to the server when the typing pauses. */
export function write(session, text) {
  texts.value = new Map(texts.value).set(session, text);
  clearTimeout(timers.get(session));
  timers.set(session, setTimeout(() => save(session), WAIT));
}

/** Fetch a draft, which another tab may have changed, unless this one has unsent changes. */
export async function fetchDraft(session) {
  const before = draftOf(session);
  const marks = timers.has(session) ? null : await get(`/api/sessions/${session}/marks`).catch(() => null);
  if (marks && !timers.has(session) && draftOf(session) === before) texts.value = new Map(texts.value).set(session, marks.draft);
}

/** Send a draft to the server; retry while the server cannot be reached. */
async function save(session) {
  clearTimeout(timers.get(session));
  const text = draftOf(session);
  try {
    await request("PUT", `/api/sessions/${session}/draft`, { body: { text }, keepalive: text.length < KEEPALIVE_LENGTH });
  } catch (error) {
    if (error.unreachable) return void timers.set(session, setTimeout(() => save(session), 2000));
  }
  if (draftOf(session) === text) timers.delete(session);
}

// When the page is closed, send all drafts at once.
addEventListener("pagehide", () => [...timers.keys()].forEach(save));

/** Remove the accepted message from the draft; keep the text that was typed since. */
export function sent(session, text) {
  const now = draftOf(session);
  write(session, now.startsWith(text) ? now.slice(text.length).trimStart() : now);
  save(session);
}
