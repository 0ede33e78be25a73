// The steps of a turn: texts, thoughts, tool calls, and steering.
import { decide } from "../actions.js";
import { span } from "../format.js";
import { html, steady, useState } from "../html.js";
import { Icon } from "../icon.js";
import { Markdown } from "../markdown.js";
import { Parts } from "./parts.js";

// Parts that serve agents, as in model/content.py.
const HIDDEN = ["input_refused", "repeated_call", "thought_signature"];

export const Step = steady(function Step({ step, turn, live, ended }) {
  switch (step.type) {
    case "text":
      return html`<${Markdown} text=${step.text} live=${live} />`;
    case "thought":
      return html`<${Thought} text=${step.text} live=${live} />`;
    case "call":
      return html`<${Call} call=${step} turn=${turn} ended=${ended} />`;
    case "steering":
      return html`<div class="steered"><span class="label">You, while it answered</span><${Parts} parts=${step.parts} /></div>`;
    case "result":
      return html`<${Fold} icon="tool" title="Result of an earlier tool call" state=""><${Json} value=${step.result.output} /><//>`;
    case "custom":
      if (HIDDEN.includes(step.kind)) return null;
      return html`<${Fold} icon="more" title=${step.kind} state=""><${Json} value=${step.data} /><//>`;
    default:
      return null;
  }
});

function Fold({ icon, title, brief, state, took = null, kind = "", open = false, children }) {
  const [shown, setShown] = useState(open);
  return html`<div class=${`fold ${kind}`}>
    <button type="button" class="fold-line" aria-expanded=${shown} onClick=${() => setShown(!shown)}>
      <${Icon} name=${icon} /><span class="fold-title">${title}</span>
      ${brief && html`<span class="fold-brief">${brief}</span>`}
      ${took !== null && html`<span class="fold-time">${span(took)}</span>`}
      ${state && html`<span class="fold-state">${state}</span>`}
      <${Icon} name="chevron" />
    </button>
    ${shown && html`<div class="fold-body">${children}</div>`}
  </div>`;
}

function Thought({ text, live }) {
  const brief = text.replace(/\s+/g, " ").slice(0, 120);
  return html`<${Fold} icon="thought" title=${live ? "Thinking…" : "Thought"} brief=${brief} kind="thought">
    <p class="thought-text">${text}</p>
  <//>`;
}

function Call({ call, turn, ended }) {
  const { name, result, approval, unknown } = call;
  // A call that needs approval is shown open, so that the person sees its arguments.
  const asks = approval === "asked" && !ended && !result;
  const state = stateOf(call, ended);
  const kind = asks ? "asks" : unknown ? "unknown" : result?.error ? "failed" : "";
  return html`<div class="call">
    <${Fold} icon="tool" title=${name} brief=${inline(call.arguments)} state=${state} took=${durationOf(call)} kind=${kind} key=${asks} open=${asks}>
      <span class="label">Arguments</span><${Json} value=${call.arguments} />
      ${result && html`<span class="label">${result.error ? "Error" : "Result"}</span><${Json} value=${result.output} /><${Parts} parts=${result.files ?? []} />`}
      ${unknown && html`<p class="caution"><${Icon} name="warn" />Interrupted before the result was stored. The tool may have run; ${call.allowedAgain ? "you allowed it to run once more." : "it is not run again without your permission."}</p>`}
    <//>
    ${asks && html`<div class="approval" role="group" aria-label=${`Allow ${name}?`}>
      <span>Allow <strong>${name}</strong> to run?</span>
      <button type="button" class="primary small" onClick=${() => decide(turn, call.id, true)}>Allow</button>
      <button type="button" class="small" onClick=${() => decide(turn, call.id, false)}>Deny</button>
    </div>`}
  </div>`;
}

/** How long the tool ran, if known. */
const durationOf = ({ startedAt, endedAt }) => (startedAt && endedAt ? Math.max(0, endedAt - startedAt) : null);

function stateOf({ result, approval, unknown, again, client }, ended) {
  if (unknown) return "may have run";
  if (approval === "denied") return "denied";
  if (result) return result.error ? "failed" : "done";
  if (again) return "repeated later";
  if (client) return "left to the client";
  if (approval === "asked") return ended ? "not approved" : "needs approval";
  return ended ? "no result" : "running…";
}

const inline = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text === "{}" ? "" : text.slice(0, 120);
};

function Json({ value }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<pre class="json" tabindex="0" role="region" aria-label="Value">${text}</pre>`;
}
