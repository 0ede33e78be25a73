// Banners: what a reader must know before they read on.
import { resume } from "../actions.js";
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { connection } from "../link.js";
import { past, recovery, story } from "../room.js";
import { count } from "../words.js";

export function Banners() {
  return html`<div class="banners" role="status" aria-live="polite">
    ${connection.value.state === "lost" && html`<p class="banner lost"><${Icon} name="warn" /><span class="grow">The server cannot be heard. What it accepted is safe; this page catches up by itself.</span></p>`}
    ${connection.value.state === "stranger" && html`<p class="banner lost"><${Icon} name="warn" /><span class="grow">This browser is no longer signed in. Make a link with <code>backstay link</code>.</span></p>`}
    ${recovery.value && html`<${Recovered} told=${recovery.value} />`}
    ${past.value && html`<p class="banner past"><${Icon} name="lineage" /><span class="grow">You are looking at an earlier window: ${past.value.why}. Nothing can be said here.</span>
      <button type="button" class="small" onClick=${() => (past.value = null)}>Back to now</button></p>`}
  </div>`;
}

function Recovered({ told }) {
  const cut = told.cut && story.value?.entries.find((entry) => entry.turn === told.cut);
  const caught = told.steps ? `This page caught up on ${count(told.steps, "step")}.` : "Nothing had happened meanwhile.";
  return html`<p class="banner recovered"><${Icon} name="check" />
    <span class="grow"><strong>The server is back, and nothing was lost.</strong> ${caught} ${cut && "One answer was cut off: what it had said is kept, and it can be resumed."}</span>
    ${cut && html`<button type="button" class="small" onClick=${() => ((recovery.value = null), resume(told.cut))}>Resume it</button>`}
    <button type="button" class="quiet" aria-label="Close" onClick=${() => (recovery.value = null)}><${Icon} name="close" /></button>
  </p>`;
}
