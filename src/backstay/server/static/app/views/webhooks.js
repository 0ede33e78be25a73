// Webhooks in the settings: incoming and outgoing ones, and failed requests; test, send again.
import { get, post } from "../api.js";
import { count, day } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";

export function Webhooks() {
  const [{ incoming, outgoing }, setHooks] = useState({ incoming: [], outgoing: [] });
  const read = () => attempt(async () => setHooks(await get("/api/webhooks")));
  useEffect(() => void read(), []);
  if (!incoming.length && !outgoing.length) return null;
  return html`<section><h3>Webhooks</h3><ul class="plain webhooks">
    ${incoming.map((one) => html`<li key=${`in ${one.name}`} class="row wrap"><span class="grow"><strong>${one.name}</strong><br /><span class="dim">receives <code>POST ${one.path}</code></span></span></li>`)}
    ${outgoing.map((one) => html`<${Outgoing} key=${`out ${one.name}`} one=${one} read=${read} />`)}</ul></section>`;
}

function Outgoing({ one, read }) {
  const [answer, setAnswer] = useState("");
  const [failed, setFailed] = useState(null);
  const path = `/api/webhooks/${encodeURIComponent(one.name)}`;
  const list = () => attempt(async () => setFailed((await get(`${path}/failed`)).failed));
  const test = () => attempt(async () => {
    const found = await post(`${path}/test`);
    setAnswer(`${found.accepted ? "Accepted" : "Not accepted"}: ${found.answer}`);
  });
  const retry = (notification) => attempt(async () => {
    await post(`${path}/retry`, notification ? { notification } : {});
    await Promise.all([list(), read()]);
  });
  return html`<li class="row wrap"><span class="grow"><strong>${one.name}</strong><br /><span class="dim">sends to <code>${one.url}</code>: ${one.events.map((name) => name.replaceAll("_", " ")).join(", ")}</span>${answer && html`<br /><span role="status">${answer}</span>`}</span>
    ${one.waiting > 0 && html`<span class="badge">${count(one.waiting, "session")} waiting</span>`}
    <button type="button" class="small" onClick=${test}>Test</button>
    ${one.failed > 0 && html`<button type="button" class="small" onClick=${list}>${one.failed} failed</button><button type="button" class="small" onClick=${() => retry()}>Send all again</button>`}
    ${failed && html`<ul class="plain">${failed.map((letter) => html`<li key=${`${letter.session}.${letter.event}.${letter.part}`} class="row wrap"><span class="grow dim"><time>${day(letter.at)}</time> · ${count(letter.attempts, "attempt")} · ${letter.reason}</span>
      <button type="button" class="small" onClick=${() => retry(`${letter.session}.${letter.event}`)}>Send again</button></li>`)}</ul>`}</li>`;
}
