// The notices. While a dialog is open, they are shown inside it: everything behind a modal dialog is inert.
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { dismiss, notices } from "../notices.js";

export function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">${notices.value.map(({ id, text, hint, kind }) => html`<div key=${id} class=${`notice ${kind}`}>
    <p>${text} ${hint && html`<span class="dim">${hint}</span>`}</p><button type="button" class="quiet" aria-label="Dismiss" onClick=${() => dismiss(id)}><${Icon} name="close" /></button></div>`)}</div>`;
}
