// Settings: agents and their selection, theme, notifications, schedules, webhooks, gateways, tokens and browsers, retention, import.
import { importSession } from "../actions.js";
import { get, post, remove } from "../api.js";
import { day, isolated, named, size } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";
import { about, isScripted } from "../server.js";
import { theme } from "../theme.js";
import { Devices } from "./devices.js";
import { Dialog } from "./dialog.js";
import { Gateways } from "./gateways.js";
import { Schedules } from "./schedules.js";
import { Webhooks } from "./webhooks.js";

const TOKEN_LIFETIMES = [["", "never expires"], ["1", "expires in a day"], ["7", "expires in a week"], ["30", "expires in 30 days"], ["90", "expires in 90 days"], ["365", "expires in a year"]];

export function Settings() {
  if (!about.value) return html`<${Dialog} title="Settings" kind="wide"><p class="dim">Waiting for the server…</p><//>`;
  return html`<${Dialog} title="Settings" kind="wide">
    <${Answers} /><${Appearance} /><${Devices} /><${Schedules} /><${Webhooks} /><${Gateways} /><${Tokens} /><${Retention} /><${Files} /><${Version} />
  <//>`;
}

function Answers() {
  const { facts } = about.value;
  return html`<section><h3>Agents</h3><p>${facts.why || (facts.agents.length ? "The program that runs this server chose the agents." : "This server runs no agent; messages wait for another server.")}</p>
    <ul class="plain">${facts.agents.map((name) => html`<li key=${name}><strong>${name}</strong> ${isScripted(name) && html`<span class="badge">scripted: no model</span>`}</li>`)}</ul>
    <p class="dim">Choose another with <code>backstay serve --agent</code>; <code>backstay agents</code> lists the available ones.</p></section>`;
}

function Appearance() {
  return html`<section><h3>Appearance</h3><div class="ways" role="radiogroup" aria-label="Theme">${["system", "light", "dark"].map((name) => html`
    <label key=${name} class=${theme.value === name ? "on" : ""}><input type="radio" name="theme" checked=${theme.value === name} onChange=${() => (theme.value = name)} />${name}</label>`)}</div></section>`;
}

function Tokens() {
  const [tokens, setTokens] = useState([]);
  const [name, setName] = useState("");
  const [days, setDays] = useState("");
  const [readOnly, setReadOnly] = useState(false);
  const [shown, setShown] = useState(null);
  const read = () => attempt(async () => setTokens((await get("/api/tokens")).tokens));
  useEffect(() => void read(), []);
  const createToken = () => attempt(async () => {
    const { secret } = await post("/api/tokens", { name, access: readOnly ? "read" : "full", expires_in: days ? Number(days) * 86_400 : null });
    setShown({ what: "New token, shown only once", text: secret });
    setName("");
    read();
  });
  const link = () => attempt(async () => {
    const { path } = await post("/api/links");
    setShown({ what: "Signs in one browser, once, within 15 minutes", text: location.origin + path });
  });
  const revoke = (token) => attempt(async () => (await remove(`/api/tokens/${token.id}`), read()));
  return html`<section><h3>Tokens and browsers</h3>
    <ul class="plain tokens">${tokens.map((token) => html`<li key=${token.id} class="row"><span class="grow one-line" dir="auto">${named(token.name)}</span><span class="badge">${token.kind}</span>${token.access === "read" && html`<span class="badge">read-only</span>`}<time class="dim">${day(token.created_at)}</time>${token.expires_at && html`<span class="dim">until <time>${day(token.expires_at)}</time></span>`}
      <button type="button" class="small" onClick=${() => confirm(`Revoke ${isolated(token.name)}?`) && revoke(token)}>Revoke</button></li>`)}</ul>
    <form class="row wrap" onSubmit=${(event) => (event.preventDefault(), name && createToken())}><input class="grow" aria-label="Purpose of the token" placeholder="What is the token for?" maxlength="200" value=${name} onInput=${(event) => setName(event.target.value)} />
      <select class="small" aria-label="When the token expires" value=${days} onChange=${(event) => setDays(event.target.value)}>${TOKEN_LIFETIMES.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select>
      <label class="small"><input type="checkbox" checked=${readOnly} onChange=${(event) => setReadOnly(event.target.checked)} /> read-only</label>
      <button class="small" disabled=${!name.trim()}>New token</button><button type="button" class="small" onClick=${link}>Link for another browser</button></form>
    ${shown && html`<p role="status">${shown.what}: <code class="secret">${shown.text}</code></p>`}
    <p><button type="button" class="small" onClick=${() => attempt(async () => (await post("/api/logout"), location.reload()))}>Sign out of this browser</button></p></section>`;
}

function Retention() {
  const { keep_closed_days: days, compact_tokens: tokens } = about.value;
  return html`<section><h3>Retention</h3><ul class="plain">
    <li>Closed and expired sessions are kept ${days ? `for ${days} days` : "forever"}.</li>
    <li>${tokens ? `Earlier messages are summarised when a conversation exceeds four fifths of ${tokens.toLocaleString()} tokens.` : "Conversations are summarised only on request."}</li></ul></section>`;
}

function Files() {
  return html`<section><h3>Import</h3><p>Import an exported session of up to ${size(about.value.import_bytes)}:
    <input type="file" accept="application/x-ndjson,application/json,.jsonl,.json" aria-label="Import a session" onChange=${(event) => event.target.files[0] && importSession(event.target.files[0])} /></p></section>`;
}

function Version() {
  const { facts, owner } = about.value;
  return html`<section class="dim"><p>Backstay ${facts.version} on ${facts.engine}; signed in as <strong>${owner}</strong>. <a href="/api/openapi.json">API</a> · <a href="/static/vendor/LICENCES.txt">Licences</a></p></section>`;
}
