// A user's message: plain text, exactly as written, and its attachments.
import { named, size } from "../format.js";
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { attempt } from "../notices.js";

export function Parts({ parts }) {
  return parts.map((part, key) => {
    if (part.type === "text") return html`<p key=${key} class="message-text">${part.text}</p>`;
    if (part.type === "attachment") return html`<${File} key=${key} file=${part} />`;
    return html`<pre key=${key} class="json">${JSON.stringify(part.data ?? part, null, 2)}</pre>`;
  });
}

function File({ file }) {
  return html`<button type="button" class="chip" onClick=${() => attempt(() => download(file))}>
    <${Icon} name="clip" /><span dir="auto">${named(file.name)}</span><span class="dim">${size(file.size)}</span>
  </button>`;
}

const PIECE = 1 << 20;

/** Download a file in ranges, as the server provides it, and save it as a whole. */
async function download({ blob, name, size: whole }) {
  const pieces = [];
  for (let start = 0; start < Math.max(1, whole); start += PIECE) {
    const range = whole ? { range: `bytes=${start}-${Math.min(whole, start + PIECE) - 1}` } : {};
    const response = await fetch(`/api/blobs/${blob}`, { headers: range });
    if (!response.ok) throw new Error("The file could not be downloaded.");
    pieces.push(await response.arrayBuffer());
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(pieces, { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
