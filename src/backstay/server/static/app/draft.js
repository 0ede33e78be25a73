// The draft: what is being written in a session, kept by the server so that another tab or a restart finds it.
import { signal } from "../vendor/page.js";
import { ask, get } from "./api.js";

const WAIT = 400;
// A browser sends no more than 64 KB for a page that is gone.
const FAREWELL = 16_000;
const texts = signal(new Map());
/** The sessions whose draft the server does not have yet, each with when it is told. */
const timers = new Map();

/** What is written in a session so far. */
export const draftOf = (session) => texts.value.get(session) ?? "";

/** Write something else; the server is told when the hands rest. */
export function write(session, text) {
  texts.value = new Map(texts.value).set(session, text);
  clearTimeout(timers.get(session));
  timers.set(session, setTimeout(() => keep(session), WAIT));
}

/** Fetch what was left here, perhaps by another tab, unless something is being written. */
export async function fetchDraft(session) {
  const before = draftOf(session);
  const marks = timers.has(session) ? null : await get(`/api/sessions/${session}/marks`).catch(() => null);
  if (marks && !timers.has(session) && draftOf(session) === before) texts.value = new Map(texts.value).set(session, marks.draft);
}

/** Let the server have it; if it cannot be reached, once it can. */
async function keep(session) {
  clearTimeout(timers.get(session));
  const text = draftOf(session);
  try {
    await ask("PUT", `/api/sessions/${session}/draft`, { body: { text }, keepalive: text.length < FAREWELL });
  } catch (error) {
    if (error.unreachable) return void timers.set(session, setTimeout(() => keep(session), 2000));
  }
  if (draftOf(session) === text) timers.delete(session);
}

// A page that goes away cannot wait for hands to rest.
addEventListener("pagehide", () => [...timers.keys()].forEach(keep));

/** What was accepted is no draft any more; what was written since is. */
export function sent(session, text) {
  const now = draftOf(session);
  write(session, now.startsWith(text) ? now.slice(text.length).trimStart() : now);
  keep(session);
}
