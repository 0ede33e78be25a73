// Notifications in the settings: the devices of the owner, and this one.
import { addThisDevice, canNotify, readDevices, removeDevice } from "../devices.js";
import { day, isolated, named } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";

export function Devices() {
  const [{ available, public_key: key, devices }, setFacts] = useState({ available: null, devices: [] });
  const [name, setName] = useState("");
  const [text, setText] = useState(false);
  const read = () => attempt(async () => setFacts(await readDevices()));
  useEffect(() => void read(), []);
  const add = () => attempt(async () => (await addThisDevice(key, name, text), setName(""), read()));
  const drop = (one) => attempt(async () => (await removeDevice(one.number), read()));
  return html`<section><h3>Notifications</h3>
    <ul class="plain devices">${devices.map((one) => html`<li key=${one.number} class="row"><span class="grow one-line" dir="auto">${named(one.name)}</span>${one.text && html`<span class="badge">with text</span>`}<time class="dim">${day(one.created_at)}</time>
      <button type="button" class="small" onClick=${() => confirm(`Send nothing more to ${isolated(one.name)}?`) && drop(one)}>Remove</button></li>`)}</ul>
    ${available === false && html`<p class="dim">This server cannot send notifications: install it as <code>backstay[push]</code>.</p>`}
    ${available && !canNotify() && html`<p class="dim">This browser cannot get notifications here. It needs HTTPS; on a phone, install the page first.</p>`}
    ${available && canNotify() && html`<form class="row wrap" onSubmit=${(event) => (event.preventDefault(), name.trim() && add())}>
      <input class="grow" aria-label="Name of this device" placeholder="Name of this device" maxlength="100" value=${name} onInput=${(event) => setName(event.target.value)} />
      <label class="small"><input type="checkbox" checked=${text} onChange=${(event) => setText(event.target.checked)} /> show text of answers</label>
      <button class="small" disabled=${!name.trim()}>Notify this device</button></form>`}
    <p class="dim">A device is told when a turn has ended, and when you are needed. The menu of a session switches this off.</p></section>`;
}
