// The waiting messages. Until they are started, they can be edited, reordered or withdrawn.
import { release, reorder, rewrite, withdraw } from "../actions.js";
import { html, useState } from "../html.js";
import { Icon } from "../icon.js";
import { acceptOrCancel } from "../keyboard.js";
import { running, waiting as inbox } from "../open_session.js";
import { replaceText, textOf } from "../reduce.js";
import { about } from "../server.js";

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
  const save = async () => (await rewrite(turn.id, replaceText(turn.parts, editing))) && setEditing(null);
  if (editing !== null) {
    return html`<li><input class="grow" aria-label="Waiting message" value=${editing} onInput=${(event) => setEditing(event.target.value)}
        onKeyDown=${acceptOrCancel(save, () => setEditing(null))} />
      <button type="button" class="small primary" onClick=${save}>Save</button></li>`;
  }
  return html`<li>
    <${WaitReason} turn=${turn} /><span class="grow one-line" dir="auto">${text}</span>
    ${turn.held && html`<button type="button" class="small primary" onClick=${() => release(turn.id)}>Release</button>`}
    ${up && html`<button type="button" class="quiet" aria-label="Move up" onClick=${up}><${Icon} name="up" /></button>`}
    ${down && html`<button type="button" class="quiet" aria-label="Move down" onClick=${down}><${Icon} name="down" /></button>`}
    <button type="button" class="quiet" aria-label="Edit" onClick=${() => setEditing(textOf(turn.parts))}><${Icon} name="edit" /></button>
    <button type="button" class="quiet" aria-label="Remove" onClick=${() => withdraw(turn.id)}><${Icon} name="close" /></button>
  </li>`;
}

/** Why a message waits: it is queued, it is held, or no server runs its agent. */
function WaitReason({ turn }) {
  if (turn.held) return html`<span class="badge absent" title="This message was imported. It is sent when you release it.">held</span>`;
  const here = about.value?.facts.agents.includes(turn.agent) ?? true;
  if (here || running.value) return html`<span class="badge">${turn.steer ? "steers" : "queued"}</span>`;
  return html`<span class="badge absent" title=${`No server runs the agent ${turn.agent}. The message is answered as soon as one does.`}>waits for ${turn.agent}</span>`;
}
