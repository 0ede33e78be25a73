// The help dialog: keyboard shortcuts and commands.
import { COMMANDS } from "../commands.js";
import { html } from "../html.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["Enter", "Send (with Shift: new line)"],
  ["Esc", "Close a dialog, or stop the answer"],
  ["↑", "In an empty message: edit the last message"],
  ["Ctrl K", "Search"],
  ["Alt ↑ / Alt ↓", "Previous or next session"],
  ["Alt N", "New session"],
  ["?", "This help"],
];

export function Help() {
  return html`<${Dialog} title="Help">
    <h3>Keys</h3><dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <h3>Commands</h3><dl class="keys">${COMMANDS.map(({ name, what }) => html`<div key=${name}><dt><code>/${name}</code></dt><dd>${what}</dd></div>`)}</dl>
  <//>`;
}
