// Chat gateways in the settings: whether messages reach them, who was let in, and a check of the bot.
import { get, post, remove } from "../api.js";
import { day, isolated, named } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";

export function Gateways() {
  const [{ gateways, checkable }, setList] = useState({ gateways: [], checkable: false });
  const [findings, setFindings] = useState(null);
  const read = () => attempt(async () => setList(await get("/api/gateways")));
  useEffect(() => void read(), []);
  const check = () => attempt(async () => setFindings((await post("/api/gateways/check")).findings));
  return html`<section><h3>Chat gateways</h3>
    <ul class="plain gateways">${gateways.map((one) => html`<${Gateway} key=${one.name} gateway=${one} changed=${read} />`)}</ul>
    ${checkable && html`<p><button type="button" class="small" onClick=${check}>Check</button></p>`}
    ${findings && html`<ul class="plain findings" role="status">${findings.map((one) => html`<li key=${one.about}><span class=${`badge ${one.level}`}>${one.level === "fine" ? "ok" : one.level}</span> <strong>${one.about}</strong> ${one.detail}${one.hint && html`<br /><span class="dim">${one.hint}</span>`}</li>`)}</ul>`}
    ${!gateways.length && html`<p class="dim">Run a bot with <code>backstay gateway telegram</code>, or with <code>backstay serve</code> and a token.</p>`}</section>`;
}

function Gateway({ gateway, changed }) {
  const [code, setCode] = useState("");
  const at = `/api/gateways/${gateway.name.split("/").map(encodeURIComponent).join("/")}`;
  const pair = () => attempt(async () => (await post(`${at}/pair`, { code }), setCode(""), changed()));
  const invite = () => attempt(async () => (await post(`${at}/invite`), changed()));
  const drop = (one) => attempt(async () => (await remove(`${at}/people/${encodeURIComponent(one.person)}`), changed()));
  const waiting = gateway.people.some((one) => one.code_until);
  return html`<li>
    <div class="row wrap"><strong class="grow">${gateway.name}</strong><span class=${`badge ${gateway.state === "polling" ? "fine" : gateway.state === "starting" ? "" : "wrong"}`}>${gateway.state}</span></div>
    ${gateway.problem && html`<p class="dim">${named(gateway.problem)}</p>`}
    <p class="dim">${gateway.received_at ? html`Last message received <time>${day(gateway.received_at)}</time>` : "No message received yet"}${gateway.answered_at && html`; the platform answered <time>${day(gateway.answered_at)}</time>`}.</p>
    <ul class="plain people">${gateway.people.map((one) => html`<li key=${one.person} class="row"><span class="grow one-line" dir="auto">${named(one.name)} <span class="dim">${one.person}</span></span>
      <span class="dim">${one.paired_at ? html`let in <time>${day(one.paired_at)}</time>` : "has a code"}</span>
      <button type="button" class="small" onClick=${() => confirm(`Let ${isolated(one.name)} in no longer?`) && drop(one)}>Remove</button></li>`)}</ul>
    ${waiting && html`<form class="row wrap" onSubmit=${(event) => (event.preventDefault(), code.trim() && pair())}><input class="grow" aria-label=${`Code of a person for ${gateway.name}`} placeholder="The code that the bot gave" maxlength="100" autocomplete="off" value=${code} onInput=${(event) => setCode(event.target.value)} />
      <button class="small" disabled=${!code.trim()}>Let in</button></form>`}
    ${gateway.people.some((one) => one.paired_at) && !gateway.pairing_until && html`<p><button type="button" class="small" onClick=${invite}>Let another person in</button></p>`}
    ${gateway.pairing_until && html`<p class="dim">It gives codes until <time>${day(gateway.pairing_until)}</time>. Write to the bot, and enter the code here.</p>`}</li>`;
}
