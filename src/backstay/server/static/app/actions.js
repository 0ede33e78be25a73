// Actions on the open session. Each is one request; its effect arrives on the event stream.
import { patch, post, postUntilAccepted, put, remove, request } from "./api.js";
import { draftOf } from "./draft.js";
import { isolated } from "./format.js";
import { attempt, showNotice } from "./notices.js";
import { closed, current, empty, openSession, sessionState, showPresent } from "./open_session.js";
import { go } from "./route.js";
import { filter, sessionList } from "./session_list.js";
import { rowsOf } from "./session_rows.js";

const at = (rest) => `/api/sessions/${current.value}${rest}`;

let newest = null;
let making = null;

/** Create an empty session and return its id. The last one created is reused while it is still empty. */
export async function create() {
  if (newest && isUntouched(newest)) return newest;
  making ??= post("/api/sessions").finally(() => (making = null));
  newest = (await making).id;
  go(newest);
  return newest;
}

const isUntouched = (id) => location.hash === `#${id}` && (current.value !== id || (empty.value && !closed.value && !draftOf(id)));

/** Send a message, and retry until it is accepted. Opens the fork if the server forked the session. */
export async function sendMessage(session, content, { agent, ifBusy = "enqueue", onRetry } = {}) {
  const turn = await postUntilAccepted(`/api/sessions/${session}/turns`, { ...content, if_busy: ifBusy, ...(agent && { agent }) }, onRetry);
  showPresent();
  if (turn.session !== session) {
    go(turn.session);
    showNotice("Sent to a fork. The original session continues unchanged.");
  }
  return turn;
}

export const stop = () => sessionState.value?.running && attempt(() => post(`/api/turns/${sessionState.value.running}/cancel`));
export const resume = (turn) => attempt(() => post(`/api/turns/${turn}/resume`));
export const retry = (agent) => attempt(() => postUntilAccepted(at("/retry"), agent ? { agent } : {}));
export const undo = () => attempt(() => post(at("/undo")));
export const redo = () => attempt(() => post(at("/redo")));
export const compact = () =>
  attempt(async () => {
    const before = sessionState.value?.window;
    const { id } = await post(at("/compact"));
    if (id === before) showNotice("Nothing to summarise yet.");
  });
export const edit = (message, parts) =>
  attempt(async () => {
    const turn = await postUntilAccepted(at(`/messages/${message}/edit`), { parts });
    showPresent();
    return turn;
  });
export const release = (turn) => attempt(() => post(`/api/turns/${turn}/release`));
export const withdraw = (turn) => attempt(() => remove(`/api/turns/${turn}`));
export const rewrite = (turn, parts) => attempt(() => patch(`/api/turns/${turn}`, { parts }));
export const reorder = (turns) => attempt(() => put(at("/waiting"), { turns }));
export const decide = (turn, call, approved) =>
  attempt(() => put(`/api/turns/${turn}/calls/${encodeURIComponent(call)}/decision`, { approved }));
/** Allow a call that may have run to run once more. Its turn continues. */
export const allowAgain = (turn, call) =>
  attempt(() => put(`/api/turns/${turn}/calls/${encodeURIComponent(call)}/decision`, { approved: true, run_again: true }));

/** Fork the session up to the end of a turn; without a turn, all of it. */
export const fork = (turn = null) =>
  attempt(async () => {
    const { id } = await post(at("/fork"), turn ? { at: turn } : {});
    go(id);
    showNotice("Forked. The original session is unchanged.");
  });

// --- sessions --------------------------------------------------------------------------------------------------------

export const updateSession = (id, change) => attempt(() => patch(`/api/sessions/${id}`, change));

export const end = (id) => attempt(() => post(`/api/sessions/${id}/end`));

export const destroy = (id) =>
  attempt(async () => {
    const { messages, kept_messages: kept } = await remove(`/api/sessions/${id}`);
    if (current.value === id) go(null);
    showNotice(`Deleted ${messages} messages${kept ? `; kept ${kept} that a fork still uses` : ""}.`);
  });

/** Download a session as a file. */
export function downloadSession(id) {
  const link = document.createElement("a");
  link.href = `/api/sessions/${id}/export`;
  link.download = `${id}.jsonl`;
  link.click();
}

/** Import a session from a file. */
export const importSession = (file) =>
  attempt(async () => {
    const { session, dropped, held } = await request("POST", "/api/imports", { raw: await checkedExport(file), type: "application/x-ndjson" });
    go(session.id);
    const notes = ["Imported."];
    if (held.length) notes.push("Its waiting messages are held until you release them.");
    if (dropped.length) notes.push("Its addresses were not imported.");
    showNotice(notes.join(" "));
  });

/** Return the file if it begins like an exported session. It may be too large to read completely here. */
async function checkedExport(file) {
  if (/^\s*\{/.test(await file.slice(0, 100).text())) return file;
  throw new Error(`The file ${isolated(file.name)} is not an exported session.`);
}

/** Open the next or previous session in the list, as it is shown. */
export function step(by) {
  const shown = rowsOf(sessionList.value, filter.value, Date.now()).filter((row) => row.session);
  const place = shown.findIndex((row) => row.session.id === current.value);
  const next = shown[Math.max(0, Math.min(shown.length - 1, place + by))];
  if (next) go(next.session.id);
}

export const reload = () => openSession(current.value);
