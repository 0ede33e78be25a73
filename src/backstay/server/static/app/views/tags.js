// The tags of the open session.
import { updateSession } from "../actions.js";
import { html, useState } from "../html.js";
import { currentSession } from "../open_session.js";
import { tags } from "../session_list.js";
import { Dialog } from "./dialog.js";

export function Tags() {
  const session = currentSession.value;
  const [text, setText] = useState("");
  if (!session) return null;
  const add = (tag) => tag.trim() && updateSession(session.id, { add_tags: [tag.trim()] }).then(() => setText(""));
  const others = tags.value.filter((tag) => !session.tags.includes(tag));
  return html`<${Dialog} title="Tags">
    <p class="row wrap">${session.tags.map((tag) => html`<button type="button" class="chip" key=${tag} aria-label=${`Remove ${tag}`} onClick=${() => updateSession(session.id, { remove_tags: [tag] })}>#${tag} ×</button>`)}
      ${!session.tags.length && html`<span class="dim">None yet.</span>`}</p>
    <form class="row" onSubmit=${(event) => (event.preventDefault(), add(text))}><input class="grow" aria-label="New tag" placeholder="New tag" value=${text} onInput=${(event) => setText(event.target.value)} /><button class="small primary">Add</button></form>
    ${others.length > 0 && html`<p class="row wrap">${others.map((tag) => html`<button type="button" class="chip" key=${tag} onClick=${() => add(tag)}>#${tag}</button>`)}</p>`}
  <//>`;
}
