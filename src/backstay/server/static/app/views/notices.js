// Notices as they are seen. While a sheet lies over the page they lie over the sheet: what is behind it cannot be reached.
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { dismiss, notices } from "../notices.js";

export function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">${notices.value.map(({ id, text, hint, kind }) => html`<div key=${id} class=${`notice ${kind}`}>
    <p>${text} ${hint && html`<span class="dim">${hint}</span>`}</p><button type="button" class="quiet" aria-label="Dismiss" onClick=${() => dismiss(id)}><${Icon} name="close" /></button></div>`)}</div>`;
}
