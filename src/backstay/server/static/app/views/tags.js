// The tags of the open session.
import { file } from "../actions.js";
import { html, useState } from "../html.js";
import { line } from "../room.js";
import { tags } from "../shelf.js";
import { Dialog } from "./dialog.js";

export function Tags() {
  const session = line.value;
  const [text, setText] = useState("");
  if (!session) return null;
  const add = (tag) => tag.trim() && file(session.id, { add_tags: [tag.trim()] }).then(() => setText(""));
  const others = tags.value.filter((tag) => !session.tags.includes(tag));
  return html`<${Dialog} title="Tags">
    <p class="row wrap">${session.tags.map((tag) => html`<button type="button" class="chip" key=${tag} aria-label=${`Remove ${tag}`} onClick=${() => file(session.id, { remove_tags: [tag] })}>#${tag} ×</button>`)}
      ${!session.tags.length && html`<span class="dim">None yet.</span>`}</p>
    <form class="row" onSubmit=${(event) => (event.preventDefault(), add(text))}><input class="grow" aria-label="New tag" placeholder="New tag" value=${text} onInput=${(event) => setText(event.target.value)} /><button class="small primary">Add</button></form>
    ${others.length > 0 && html`<p class="row wrap">${others.map((tag) => html`<button type="button" class="chip" key=${tag} onClick=${() => add(tag)}>#${tag}</button>`)}</p>`}
  <//>`;
}
