// What a reader can do to the open session. Each is one request; what comes of it is told by the stream.
import { ask, insist, patch, post, put, remove } from "./api.js";
import { draftOf } from "./draft.js";
import { rowsOf } from "./lines.js";
import { attempt, tell } from "./notices.js";
import { closed, current, empty, enter, story, toNow } from "./room.js";
import { go } from "./route.js";
import { filter, lines } from "./shelf.js";

const at = (rest) => `/api/sessions/${current.value}${rest}`;

let newest = null;
let making = null;

/** A new session with nothing in it; its id. The one that was made last is as new while nothing was written in it. */
export async function create() {
  if (newest && isUntouched(newest)) return newest;
  making ??= post("/api/sessions").finally(() => (making = null));
  newest = (await making).id;
  go(newest);
  return newest;
}

const isUntouched = (id) => location.hash === `#${id}` && (current.value !== id || (empty.value && !closed.value && !draftOf(id)));

/** Say something, until it is accepted. Where it went: another session, if it was forked. */
export async function say(session, said, { agent, ifBusy = "enqueue", told } = {}) {
  const turn = await insist(`/api/sessions/${session}/turns`, { ...said, if_busy: ifBusy, ...(agent && { agent }) }, told);
  toNow();
  if (turn.session !== session) {
    go(turn.session);
    tell("Sent to a fork: this session goes on undisturbed.");
  }
  return turn;
}

export const stop = () => story.value?.running && attempt(() => post(`/api/turns/${story.value.running}/cancel`));
export const resume = (turn) => attempt(() => post(`/api/turns/${turn}/resume`));
export const retry = (agent) => attempt(() => insist(at("/retry"), agent ? { agent } : {}));
export const undo = () => attempt(() => post(at("/undo")));
export const redo = () => attempt(() => post(at("/redo")));
export const compact = () =>
  attempt(async () => {
    const before = story.value?.window;
    const { id } = await post(at("/compact"));
    if (id === before) tell("There is nothing yet that could be summarised.");
  });
export const edit = (message, parts) =>
  attempt(async () => {
    const turn = await insist(at(`/messages/${message}/edit`), { parts });
    toNow();
    return turn;
  });
export const withdraw = (turn) => attempt(() => remove(`/api/turns/${turn}`));
export const rewrite = (turn, parts) => attempt(() => patch(`/api/turns/${turn}`, { parts }));
export const reorder = (turns) => attempt(() => put(at("/waiting"), { turns }));
export const decide = (turn, call, approved) =>
  attempt(() => put(`/api/turns/${turn}/calls/${encodeURIComponent(call)}/decision`, { approved }));

/** A new session with everything up to the end of a turn; with all of it, if none is named. */
export const fork = (turn = null) =>
  attempt(async () => {
    const { id } = await post(at("/fork"), turn ? { at: turn } : {});
    go(id);
    tell("Forked. The session it came from is unchanged.");
  });

// --- filing -------------------------------------------------------------------------------------------------------------

export const file = (id, change) => attempt(() => patch(`/api/sessions/${id}`, change));

export const end = (id) => attempt(() => post(`/api/sessions/${id}/end`));

export const destroy = (id) =>
  attempt(async () => {
    const { messages, kept_messages: kept } = await remove(`/api/sessions/${id}`);
    if (current.value === id) go(null);
    tell(`Deleted, with ${messages} messages${kept ? `; ${kept} stay because a fork reads them` : ""}.`);
  });

/** Offer a session as a file. */
export function save(id) {
  const link = document.createElement("a");
  link.href = `/api/sessions/${id}/export`;
  link.download = `${id}.json`;
  link.click();
}

/** Take a session in from a file. */
export const take = (file) =>
  attempt(async () => {
    const { session } = await ask("POST", "/api/imports", { body: await exportedIn(file) });
    go(session.id);
    tell("Imported, with nothing lost on the way.");
  });

async function exportedIn(file) {
  try {
    return JSON.parse(await file.text());
  } catch {
    throw new Error(`There is no exported session in ${file.name}.`);
  }
}

/** Go up or down in the list, as it is shown. */
export function step(by) {
  const shown = rowsOf(lines.value, filter.value, Date.now()).filter((row) => row.line);
  const place = shown.findIndex((row) => row.line.id === current.value);
  const next = shown[Math.max(0, Math.min(shown.length - 1, place + by))];
  if (next) go(next.line.id);
}

export const reload = () => enter(current.value);
