// Uploads: files are sent in chunks before the message that contains them.
import { signal } from "../vendor/page.js";
import { post, request, retryWhileUnreachable } from "./api.js";
import { isolated, size } from "./format.js";
import { showNotice } from "./notices.js";
import { closed, current, past } from "./open_session.js";
import { about } from "./server.js";

export const MOST = 32 << 20;
const FILES = 10;

const files = signal([]);
let count = 0;

/** The files attached to the next message of a session. */
export const filesOf = (session) => files.value.filter((file) => file.session === session);

/** Attach files to a session and start to upload them; files that are too large are rejected before that. */
export function attach(session, found) {
  for (const file of found) {
    if (filesOf(session).length >= FILES) return showNotice(`A message can have at most ${FILES} files.`, "error");
    if (file.size > MOST) showNotice(`${isolated(file.name)} is larger than ${size(MOST)}.`, "error");
    else if (!file.size) showNotice(`${isolated(file.name)} is empty.`, "error");
    else send(session, file);
  }
}

async function send(session, file) {
  const id = (count += 1);
  files.value = [...files.value, { id, session, name: file.name, size: file.size, type: file.type || "application/octet-stream", done: 0, blob: null }];
  const isAttached = () => files.value.some((one) => one.id === id);
  const untilSent = (work) => retryWhileUnreachable(work, () => {}, isAttached);
  try {
    const upload = await untilSent(() => post("/api/uploads"));
    const piece = Math.min(1 << 20, about.value?.body_bytes ?? 1 << 20);
    for (let start = 0; start < file.size; start += piece) {
      const raw = file.slice(start, start + piece);
      await untilSent(() => request("PUT", `/api/uploads/${upload.id}`, { raw, query: { start: String(start) } }));
      if (!isAttached()) return;
      change(id, { done: Math.min(file.size, start + piece) });
    }
    const { hash } = await untilSent(() => post(`/api/uploads/${upload.id}/finish`));
    change(id, { blob: hash });
  } catch (error) {
    if (!isAttached()) return;
    drop(id);
    showNotice(error);
  }
}

const change = (id, more) => (files.value = files.value.map((file) => (file.id === id ? { ...file, ...more } : file)));

export const drop = (id) => (files.value = files.value.filter((file) => file.id !== id));

/** The files as parts of a message. */
export const partsOf = (sent) =>
  sent.map(({ blob, name, type, size }) => ({ type: "attachment", blob, name, media_type: type, size }));

// A file that is dropped anywhere on the page is attached to the message; the browser must not open it.
const hasFiles = ({ dataTransfer, target }) => dataTransfer?.types.includes("Files") && !target.closest?.("input[type=file]");
addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  if (current.value && !closed.value && !past.value) attach(current.value, event.dataTransfer.files);
});
