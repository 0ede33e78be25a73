// Settings: who answers and why, how it looks, who may come in, what is kept, and sessions as files.
import { take } from "../actions.js";
import { get, post, remove } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";
import { about, isScripted } from "../server.js";
import { theme } from "../theme.js";
import { day, size } from "../words.js";
import { Dialog } from "./dialog.js";

export function Settings() {
  if (!about.value) return html`<${Dialog} title="Settings" kind="wide"><p class="dim">The server has not told yet what it is.</p><//>`;
  return html`<${Dialog} title="Settings" kind="wide">
    <${Answers} /><${Looks} /><${Tokens} /><${Kept} /><${Files} /><${Version} />
  <//>`;
}

function Answers() {
  const { facts } = about.value;
  return html`<section><h3>Who answers</h3><p>${facts.why || (facts.agents.length ? "The program that serves this page chose who answers." : "This process serves no agent; turns wait for another one.")}</p>
    <ul class="plain">${facts.agents.map((name) => html`<li key=${name}><strong>${name}</strong> ${isScripted(name) && html`<span class="badge">scripted: no model</span>`}</li>`)}</ul>
    <p class="dim">Choose another with <code>backstay serve --agent</code>; <code>backstay agents</code> shows what was found.</p></section>`;
}

function Looks() {
  return html`<section><h3>Appearance</h3><div class="ways" role="radiogroup" aria-label="Theme">${["system", "light", "dark"].map((name) => html`
    <label key=${name} class=${theme.value === name ? "on" : ""}><input type="radio" name="theme" checked=${theme.value === name} onChange=${() => (theme.value = name)} />${name}</label>`)}</div></section>`;
}

function Tokens() {
  const [tokens, setTokens] = useState([]);
  const [name, setName] = useState("");
  const [shown, setShown] = useState(null);
  const read = () => attempt(async () => setTokens((await get("/api/tokens")).tokens));
  useEffect(() => void read(), []);
  const give = () => attempt(async () => {
    const { secret } = await post("/api/tokens", { name });
    setShown({ what: "The new token, shown this once", text: secret });
    setName("");
    read();
  });
  const link = () => attempt(async () => {
    const { path } = await post("/api/links");
    setShown({ what: "Signs one browser in, once, within a quarter of an hour", text: location.origin + path });
  });
  const revoke = (token) => attempt(async () => (await remove(`/api/tokens/${token.id}`), read()));
  return html`<section><h3>Tokens and browsers</h3>
    <ul class="plain tokens">${tokens.map((token) => html`<li key=${token.id} class="row"><span class="grow one-line">${token.name}</span><span class="badge">${token.kind}</span><time class="dim">${day(token.created_at)}</time>
      <button type="button" class="small" onClick=${() => confirm(`Revoke ${token.name}?`) && revoke(token)}>Revoke</button></li>`)}</ul>
    <form class="row" onSubmit=${(event) => (event.preventDefault(), name && give())}><input class="grow" aria-label="What the token is for" placeholder="What is the token for?" maxlength="200" value=${name} onInput=${(event) => setName(event.target.value)} />
      <button class="small" disabled=${!name.trim()}>New token</button><button type="button" class="small" onClick=${link}>Link for another browser</button></form>
    ${shown && html`<p role="status">${shown.what}: <code class="secret">${shown.text}</code></p>`}
    <p><button type="button" class="small" onClick=${() => attempt(async () => (await post("/api/logout"), location.reload()))}>Sign this browser out</button></p></section>`;
}

function Kept() {
  const { keep_closed_days: days, fold_seconds: fold, compact_tokens: tokens } = about.value;
  return html`<section><h3>What is kept</h3><ul class="plain">
    <li>Sessions that were ended or expired are kept ${days ? `for ${days} days` : "for ever"}.</li>
    <li>The single steps of an answer become one, ${Math.round(fold / 60)} minutes after it ended; no word is lost by that.</li>
    <li>${tokens ? `An agent's window is summarised when it takes more than four fifths of ${tokens.toLocaleString()} tokens.` : "Windows are summarised only when asked."}</li></ul></section>`;
}

function Files() {
  return html`<section><h3>Sessions as files</h3><p>A session is exported from its own menu. Import one of up to ${size(about.value.import_bytes)}:
    <input type="file" accept="application/json,.json" aria-label="Import a session" onChange=${(event) => event.target.files[0] && take(event.target.files[0])} /></p></section>`;
}

function Version() {
  const { facts, owner } = about.value;
  return html`<section class="dim"><p>Backstay ${facts.version} on ${facts.engine}; you are <strong>${owner}</strong>. <a href="/api/openapi.json">API</a> · <a href="/plain">Plain page</a> · <a href="/static/vendor/LICENCES.txt">Licences</a></p></section>`;
}
