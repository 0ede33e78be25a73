// The draft: what is being written in a session, kept by the server so that another tab or a restart finds it.
import { signal } from "../vendor/page.js";
import { get, put } from "./api.js";

const WAIT = 400;
const texts = signal(new Map());
const timers = new Map();

/** What is written in a session so far. */
export const draftOf = (session) => texts.value.get(session) ?? "";

/** Write something else; the server is told when the hands rest. */
export function write(session, text) {
  texts.value = new Map(texts.value).set(session, text);
  clearTimeout(timers.get(session));
  timers.set(session, setTimeout(() => keep(session), WAIT));
}

/** Fetch what was left here, unless something is being written already. */
export async function fetchDraft(session) {
  if (texts.value.has(session)) return;
  const marks = await get(`/api/sessions/${session}/marks`).catch(() => null);
  if (marks && !texts.value.has(session)) texts.value = new Map(texts.value).set(session, marks.draft);
}

/** Let the server have it; if it cannot be reached, once it can. */
async function keep(session) {
  clearTimeout(timers.get(session));
  try {
    await put(`/api/sessions/${session}/draft`, { text: draftOf(session) });
  } catch (error) {
    if (error.unreachable) timers.set(session, setTimeout(() => keep(session), 2000));
  }
}

/** What was accepted is no draft any more; what was written since is. */
export function sent(session, text) {
  const now = draftOf(session);
  texts.value = new Map(texts.value).set(session, now.startsWith(text) ? now.slice(text.length).trimStart() : now);
  keep(session);
}
