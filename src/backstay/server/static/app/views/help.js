// The help sheet: keys and commands.
import { COMMANDS } from "../commands.js";
import { html } from "../html.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["Enter", "Send; with Shift a new line"],
  ["Esc", "Close what is open, or stop the answer"],
  ["↑", "In an empty message: edit the last one"],
  ["Ctrl K", "Search"],
  ["Alt ↑ / Alt ↓", "The session above or below"],
  ["Alt N", "New session"],
  ["?", "This sheet"],
];

export function Help() {
  return html`<${Dialog} title="Help">
    <h3>Keys</h3><dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <h3>Commands</h3><dl class="keys">${COMMANDS.map(({ name, what }) => html`<div key=${name}><dt><code>/${name}</code></dt><dd>${what}</dd></div>`)}</dl>
  <//>`;
}
