// Files on their way: sent in pieces before the message that brings them.
import { signal } from "../vendor/page.js";
import { ask, persist, post } from "./api.js";
import { tell } from "./notices.js";
import { closed, current, past } from "./room.js";
import { about } from "./server.js";
import { size } from "./words.js";

export const MOST = 32 << 20;
const FILES = 10;

const files = signal([]);
let count = 0;

/** The files that wait for the next message of a session. */
export const filesOf = (session) => files.value.filter((file) => file.session === session);

/** Take files for a session and begin to send them; what is too large is refused before a byte of it is sent. */
export function attach(session, found) {
  for (const file of found) {
    if (filesOf(session).length >= FILES) return tell(`A message has at most ${FILES} files.`, "error");
    if (file.size > MOST) tell(`${file.name} is larger than ${size(MOST)}.`, "error");
    else if (!file.size) tell(`${file.name} is empty.`, "error");
    else send(session, file);
  }
}

async function send(session, file) {
  const id = (count += 1);
  files.value = [...files.value, { id, session, name: file.name, size: file.size, type: file.type || "application/octet-stream", done: 0, blob: null }];
  const ours = () => files.value.some((one) => one.id === id);
  const steadily = (work) => persist(work, () => {}, ours);
  try {
    const upload = await steadily(() => post("/api/uploads"));
    const piece = Math.min(1 << 20, about.value?.body_bytes ?? 1 << 20);
    for (let start = 0; start < file.size; start += piece) {
      const raw = file.slice(start, start + piece);
      await steadily(() => ask("PUT", `/api/uploads/${upload.id}`, { raw, query: { start: String(start) } }));
      if (!ours()) return;
      change(id, { done: Math.min(file.size, start + piece) });
    }
    const { hash } = await steadily(() => post(`/api/uploads/${upload.id}/finish`));
    change(id, { blob: hash });
  } catch (error) {
    if (!ours()) return;
    drop(id);
    tell(error);
  }
}

const change = (id, more) => (files.value = files.value.map((file) => (file.id === id ? { ...file, ...more } : file)));

export const drop = (id) => (files.value = files.value.filter((file) => file.id !== id));

/** The files as parts of a message. */
export const partsOf = (sent) =>
  sent.map(({ blob, name, type, size }) => ({ type: "attachment", blob, name, media_type: type, size }));

// A file that is dropped anywhere on the page is meant for the message, and not for the browser to open.
const brings = ({ dataTransfer, target }) => dataTransfer?.types.includes("Files") && !target.closest?.("input[type=file]");
addEventListener("dragover", (event) => brings(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!brings(event)) return;
  event.preventDefault();
  if (current.value && !closed.value && !past.value) attach(current.value, event.dataTransfer.files);
});
