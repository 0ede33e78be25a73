// The start view: the agent that answers, and three things to try.
import { create, sendMessage } from "../actions.js";
import { html } from "../html.js";
import { Icon } from "../icon.js";
import { attempt } from "../notices.js";
import { current } from "../open_session.js";
import { about, isScripted, mainAgent } from "../server.js";

const EXAMPLES = [
  { icon: "thought", name: "Watch an answer stream", what: "Reload while it streams. Nothing goes missing.", text: "slow 12" },
  { icon: "tool", name: "Call a tool", what: "Arguments and result are on disk before you see them.", text: "think about numbers first\ncalc 6*7\nask Shall I tell you the time?\ntool clock" },
  { icon: "warn", name: "Crash the server and watch", what: "It is killed in the middle of an answer and comes back.", text: "slow 6\ncrash", demo: true },
];

const answering = (agents) => (agents.length > 1 ? `${agents.slice(0, -1).join(", ")} and ${agents.at(-1)} answer.` : agents[0] ? `${agents[0]} answers.` : "No agent runs on this server.");

export function Welcome() {
  const known = about.value;
  if (!known) return null;
  const scripted = isScripted(mainAgent());
  const steps = scripted ? EXAMPLES.filter((step) => !step.demo || known.demo) : [];
  const begin = (text) => attempt(async () => sendMessage(current.value ?? (await create()), { text }, { agent: mainAgent() }));
  return html`<section class="welcome">
    <h1>${scripted ? "A conversation that can't get lost" : "What would you like to talk about?"}</h1>
    <p>Every message is stored before it is acknowledged, and every answer before you see it.</p>
    <p class=${`answers ${scripted ? "scripted" : ""}`}>${scripted && html`<span class="badge">scripted</span>`} ${known.facts.why || answering(known.facts.agents)}</p>
    ${steps.length > 0 && html`<ul class="tour" aria-label="Things to try">${steps.map((step) => html`<li key=${step.name}>
      <button type="button" onClick=${() => begin(step.text)}><${Icon} name=${step.icon} /><span><strong>${step.name}</strong><span class="dim">${step.what}</span></span></button></li>`)}</ul>`}
    ${!current.value && html`<p><button type="button" class="primary" onClick=${() => attempt(create)}><${Icon} name="plus" /> New session</button></p>`}
  </section>`;
}
