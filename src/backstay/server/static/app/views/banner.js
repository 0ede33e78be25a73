// Banners above the conversation: lost connection, recovery, earlier point in time.
import { resume } from "../actions.js";
import { connection } from "../event_stream.js";
import { count } from "../format.js";
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { past, recovery, sessionState } from "../open_session.js";

export function Banners() {
  return html`<div class="banners" role="status" aria-live="polite">
    ${connection.value.state === "lost" && html`<p class="banner lost"><${Icon} name="warn" /><span class="grow">Can't reach the server. Sent messages are safe; reconnecting…</span></p>`}
    ${connection.value.state === "signed-out" && html`<p class="banner lost"><${Icon} name="warn" /><span class="grow">This browser is no longer signed in. Create a sign-in link with <code>backstay link</code>.</span></p>`}
    ${recovery.value && html`<${Recovered} result=${recovery.value} />`}
    ${past.value && html`<p class="banner past"><${Icon} name="lineage" /><span class="grow">Earlier version (${past.value.why}), read-only.</span>
      <button type="button" class="small" onClick=${() => (past.value = null)}>Back to now</button></p>`}
  </div>`;
}

function Recovered({ result }) {
  // An answer that was resumed, or left behind by another message, is not the last one any more.
  const last = sessionState.value?.entries.at(-1);
  const cut = result.cut && last?.turn === result.cut && last.outcome?.type === "interrupted";
  const waits = cut && last.outcome.waiting_for_approval;
  const caught = result.steps ? `Loaded ${count(result.steps, "missed event")}.` : "";
  return html`<p class="banner recovered"><${Icon} name="check" />
    <span class="grow"><strong>Reconnected.</strong> ${caught} ${cut && `One answer was interrupted. Its text is kept, and ${waits ? "it waits for your approval" : "you can resume it"}.`}</span>
    ${cut && !waits && html`<button type="button" class="small" onClick=${() => ((recovery.value = null), resume(result.cut))}>Resume the answer</button>`}
    <button type="button" class="quiet" aria-label="Close" onClick=${() => (recovery.value = null)}><${Icon} name="close" /></button>
  </p>`;
}
