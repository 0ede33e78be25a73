// What waits: messages that were accepted and will be said next; until then they can be changed, moved or taken back.
import { reorder, rewrite, withdraw } from "../actions.js";
import { html, useState } from "../html.js";
import { Icon } from "../icon.js";
import { textOf } from "../reduce.js";
import { waiting as inbox } from "../room.js";

export function Queue() {
  const waiting = inbox.value;
  if (!waiting.length) return null;
  const move = (place, by) => {
    const ids = waiting.map(({ id }) => id);
    [ids[place], ids[place + by]] = [ids[place + by], ids[place]];
    reorder(ids);
  };
  return html`<ol class="queue" aria-label="Waiting messages">
    ${waiting.map((turn, place) => html`<${Waiting} key=${turn.id} turn=${turn}
      up=${place > 0 && (() => move(place, -1))} down=${place < waiting.length - 1 && (() => move(place, 1))} />`)}
  </ol>`;
}

function Waiting({ turn, up, down }) {
  const [editing, setEditing] = useState(null);
  const text = textOf(turn.parts) || "files";
  const keep = async () => (await rewrite(turn.id, editing)) && setEditing(null);
  if (editing !== null) {
    return html`<li><input class="grow" aria-label="Waiting message" value=${editing} onInput=${(event) => setEditing(event.target.value)}
        onKeyDown=${(event) => (event.key === "Enter" ? keep() : event.key === "Escape" && (event.stopPropagation(), setEditing(null)))} />
      <button type="button" class="small primary" onClick=${keep}>Keep</button></li>`;
  }
  return html`<li>
    <span class="badge">${turn.steer ? "steers" : "queued"}</span><span class="grow one-line">${text}</span>
    ${up && html`<button type="button" class="quiet" aria-label="Say it earlier" onClick=${up}><${Icon} name="up" /></button>`}
    ${down && html`<button type="button" class="quiet" aria-label="Say it later" onClick=${down}><${Icon} name="down" /></button>`}
    <button type="button" class="quiet" aria-label="Change it" onClick=${() => setEditing(textOf(turn.parts))}><${Icon} name="edit" /></button>
    <button type="button" class="quiet" aria-label="Take it back" onClick=${() => withdraw(turn.id)}><${Icon} name="close" /></button>
  </li>`;
}
