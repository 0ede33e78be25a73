// A turn in the conversation: input, steps, outcome and actions.
import { allowAgain, edit, fork, resume, retry, undo } from "../actions.js";
import { useCopy } from "../copy.js";
import { clock, sentence, span, usage } from "../format.js";
import { html, steady, useEffect, useNodes, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { composing } from "../keyboard.js";
import { partsBesidesText, replaceText, textOf } from "../reduce.js";
import { isScripted } from "../server.js";
import { Parts } from "./parts.js";
import { Step } from "./steps.js";

/** `idle` is set only for the last turn, so that the others do not render again when an answer begins or ends. */
export const Turn = steady(function Turn({ entry, last, idle, frozen, editing, onEdit }) {
  const stepOf = useNodes(Step);
  if (entry.summary !== null) return html`<${Summary} text=${entry.summary} />`;
  const live = entry.state === "running";
  const answered = entry.steps.length > 0 || live;
  // A call of an interrupted turn that needs approval still waits: the decision continues the turn.
  const waits = last && idle && !frozen && entry.outcome?.type === "interrupted" && asks(entry);
  return html`<article class="turn" data-turn=${entry.turn} tabindex="-1" aria-label=${labelOf(entry)}>
    ${entry.input && html`<${Asked} entry=${entry} editing=${editing && !frozen} onEdit=${onEdit} />`}
    ${answered && html`<div class="answer" aria-busy=${live}>
      <header class="who"><span class="name">${entry.agent ?? "Recorded"}</span>
        ${isScripted(entry.agent) && html`<span class="badge" title="No model is connected. The answers follow a script.">scripted</span>`}
        ${entry.startedAt && html`<time datetime=${new Date(entry.startedAt).toISOString()}>${clock(entry.startedAt)}</time>`}
      </header>
      ${[...entry.steps, ...entry.pendingSteering.map(steeringStep)].map((step, place) => stepOf(step, place, { step, turn: entry.turn, ended: !live && !waits, live: live && place === entry.steps.length - 1 }))}
      ${live && !asks(entry) && html`<span class="typing" aria-hidden="true"><i></i><i></i><i></i></span>`}
    </div>`}
    <${Ending} entry=${entry} last=${last} idle=${idle} frozen=${frozen} />
    ${!live && html`<${Tools} entry=${entry} last=${last} idle=${idle} frozen=${frozen} onEdit=${onEdit} />`}
  </article>`;
});

const asks = ({ steps }) => steps.some((step) => step.type === "call" && step.approval === "asked" && !step.result && !step.unknown);
// Answering such a turn again would run the tool again, unasked.
const mayHaveRun = ({ steps }) => steps.some((step) => step.type === "call" && step.unknown);
const steeringStep = (parts) => ({ type: "steering", parts });
const labelOf = (entry) => (entry.input ? `You: ${textOf(entry.input.parts).slice(0, 80)}` : "Answer");

function Summary({ text }) {
  return html`<details class="summary">
    <summary><${Icon} name="archive" /> Earlier messages were summarised for the agent. Scroll up to read them.</summary>
    <p>${text}</p>
  </details>`;
}

function Asked({ entry, editing, onEdit }) {
  const { input } = entry;
  if (editing) return html`<${Editor} input=${input} onDone=${() => onEdit(null)} />`;
  return html`<div class=${`asked ${input.role}`}><${Parts} parts=${input.parts} /></div>`;
}

function Editor({ input, onDone }) {
  const [text, setText] = useState(textOf(input.parts));
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const send = async () => (await edit(input.id, replaceText(input.parts, text))) && onDone();
  const keys = (event) => {
    if (composing(event)) return;
    if (event.key === "Escape") (event.stopPropagation(), onDone());
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  };
  return html`<div class="asked editing">
    <textarea ref=${field} aria-label="Your message" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys}></textarea>
    <${Parts} parts=${partsBesidesText(input.parts)} />
    <div class="row end"><span class="dim grow">The messages that followed stay in the lineage.</span>
      <button type="button" class="small" onClick=${onDone}>Cancel</button>
      <button type="button" class="primary small" onClick=${send} disabled=${!text.trim()}>Send instead</button></div>
  </div>`;
}

const ENDINGS = {
  cancelled: ["Stopped", "The text so far is kept."],
  failed: ["Failed", ""],
  interrupted: ["Interrupted", "The text so far is kept."],
};

// The codes of failures after which agents do not read the message: its provider refused it.
const REFUSALS = ["input_refused", "context_overflow"];

function Ending({ entry, last, idle, frozen }) {
  const [title, comfort] = ENDINGS[entry.outcome?.type] ?? (entry.cut ? ["Cut off", "The end of this answer is missing."] : []);
  if (!title) return null;
  const { reason: text = "", hint, code } = entry.outcome ?? {};
  // A server for developers puts the traceback of an agent below the reason.
  const [reason, ...traced] = text.split("\n");
  const leftOut = REFUSALS.includes(code) && "Agents do not read this message until you retry or edit it.";
  const acts = last && idle && !frozen;
  const called = entry.steps.filter((step) => step.type === "call" && step.unknown);
  const doubtful = called.filter((step) => !step.allowedAgain);
  const waits = acts && entry.outcome?.type === "interrupted" && asks(entry);
  const next = waits ? "A tool waits for your approval. The answer continues when you decide." : leftOut || comfort;
  return html`<div class=${`ending ${entry.outcome?.type ?? "cut"}`} role="note">
    <${Icon} name="warn" />
    <p><strong>${title}.</strong> ${reason && html`<span>${sentence(reason)} </span>`}<span class="dim">${[hint, next].filter(Boolean).join(" ")}</span></p>
    ${traced.length > 0 && html`<pre class="traceback">${traced.join("\n")}</pre>`}
    ${acts && entry.outcome?.type === "interrupted" && doubtful.map(({ id, name }) => html`<button type="button" class="small" key=${id} title="This tool may have run. If you allow it, it may run once more, and the answer continues." onClick=${onSingleClick(() => allowAgain(entry.turn, id))}>Allow ${name} again</button>`)}
    ${acts && entry.outcome?.type === "interrupted" && html`<button type="button" class="small" onClick=${onSingleClick(() => resume(entry.turn))}>Resume</button>`}
    ${acts && !called.length && html`<button type="button" class="small" onClick=${onSingleClick(() => retry())}>Retry</button>`}
  </div>`;
}

function Tools({ entry, last, idle, frozen, onEdit }) {
  const words = entry.steps.filter((step) => step.type === "text").map((step) => step.text).join("\n\n");
  const ms = entry.startedAt && entry.endedAt ? entry.endedAt - entry.startedAt : null;
  const free = idle && !frozen;
  return html`<footer class="tools">
    ${words && html`<${Copy} text=${words} />`}
    ${!frozen && entry.input?.role === "user" && html`<${ActionButton} icon="edit" name="Edit and send again" act=${() => onEdit(entry.input.id)} />`}
    ${free && last && !mayHaveRun(entry) && html`<${ActionButton} icon="retry" name="Answer again" act=${() => retry()} />`}
    ${free && last && html`<${ActionButton} icon="undo" name="Undo this turn" act=${undo} />`}
    ${entry.turn && html`<${ActionButton} icon="fork" name="Fork from here" act=${() => fork(entry.turn)} />`}
    <span class="spent">${ms !== null && span(ms)}${entry.usage && html` <span>${usage(entry.usage)}</span>`}</span>
  </footer>`;
}

/** Ignore the second click of a double click, which may hit another element that has taken the place of the first. */
const onSingleClick = (act) => (event) => event.detail < 2 && act();

function ActionButton({ icon, name, act }) {
  return html`<button type="button" class="quiet" aria-label=${name} title=${name} onClick=${onSingleClick(act)}><${Icon} name=${icon} /></button>`;
}

function Copy({ text }) {
  const [done, copy] = useCopy(text);
  return html`<${ActionButton} icon=${done ? "check" : "copy"} name="Copy answer" act=${copy} />`;
}
