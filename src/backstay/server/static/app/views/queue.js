// What waits: messages that were accepted and will be said next; until then they can be changed, moved or taken back.
import { reorder, rewrite, withdraw } from "../actions.js";
import { html, useState } from "../html.js";
import { Icon } from "../icon.js";
import { reworded, textOf } from "../reduce.js";
import { waiting as inbox, running } from "../room.js";
import { about } from "../server.js";
import { enterOr } from "../typing.js";

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
  const keep = async () => (await rewrite(turn.id, reworded(turn.parts, editing))) && setEditing(null);
  if (editing !== null) {
    return html`<li><input class="grow" aria-label="Waiting message" value=${editing} onInput=${(event) => setEditing(event.target.value)}
        onKeyDown=${enterOr(keep, () => setEditing(null))} />
      <button type="button" class="small primary" onClick=${keep}>Keep</button></li>`;
  }
  return html`<li>
    <${Standing} turn=${turn} /><span class="grow one-line" dir="auto">${text}</span>
    ${up && html`<button type="button" class="quiet" aria-label="Say it earlier" onClick=${up}><${Icon} name="up" /></button>`}
    ${down && html`<button type="button" class="quiet" aria-label="Say it later" onClick=${down}><${Icon} name="down" /></button>`}
    <button type="button" class="quiet" aria-label="Change it" onClick=${() => setEditing(textOf(turn.parts))}><${Icon} name="edit" /></button>
    <button type="button" class="quiet" aria-label="Take it back" onClick=${() => withdraw(turn.id)}><${Icon} name="close" /></button>
  </li>`;
}

/** What a message waits for: its turn, or somebody who is not here. */
function Standing({ turn }) {
  const here = about.value?.facts.agents.includes(turn.agent) ?? true;
  if (here || running.value) return html`<span class="badge">${turn.steer ? "steers" : "queued"}</span>`;
  return html`<span class="badge absent" title=${`Nobody answers here as ${turn.agent}. It is said as soon as somebody does.`}>waits for ${turn.agent}</span>`;
}
