// Schedules in the settings: a list with the next due time and the last step; pause, run, skip, delete.
import { get, post, postUntilAccepted, remove } from "../api.js";
import { count, day, isolated, named, span } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../notices.js";
import { go } from "../route.js";
import { openDialog } from "../dialog_state.js";

export function Schedules() {
  const [schedules, setSchedules] = useState([]);
  const read = () => attempt(async () => setSchedules((await get("/api/schedules")).schedules));
  useEffect(() => void read(), []);
  const change = (one, verb) => attempt(async () => (await post(`/api/schedules/${one.id}/${verb}`), read()));
  const run = (one) => attempt(async () => (await postUntilAccepted(`/api/schedules/${one.id}/run`, {}), read()));
  const drop = (one) => attempt(async () => (await remove(`/api/schedules/${one.id}`), read()));
  return html`<section><h3>Schedules</h3>
    <ul class="plain schedules">${schedules.map((one) => html`<li key=${one.id} class="row wrap">
      <span class="grow"><span dir="auto">${named(one.text)}</span><br /><span class="dim">${one.when}${one.next_due && html`; next <time>${day(one.next_due)}</time>`}; ${lastStep(one.last)}</span></span>
      ${one.state !== "active" && html`<span class="badge">${one.state}</span>`}${one.asked_due && html`<span class="badge">missed ${day(one.asked_due)}</span>`}
      ${one.last.session && html`<button type="button" class="small" onClick=${() => ((openDialog.value = null), go(one.last.session))}>Open</button>`}
      <button type="button" class="small" onClick=${() => run(one)}>${one.asked_due ? "Send it now" : "Run now"}</button>
      ${one.asked_due && html`<button type="button" class="small" onClick=${() => change(one, "skip")}>Skip</button>`}
      ${one.state === "active" && html`<button type="button" class="small" onClick=${() => change(one, "pause")}>Pause</button>`}
      ${one.state === "paused" && html`<button type="button" class="small" onClick=${() => change(one, "resume")}>Resume</button>`}
      <button type="button" class="small" onClick=${() => confirm(`Delete the schedule ${isolated(one.text)}?`) && drop(one)}>Delete</button></li>`)}</ul>
    <p class="dim">Create one with <code>backstay at</code>, <code>backstay every</code>, or <code>/remind</code> in a terminal chat.</p></section>`;
}

/** The last step of a schedule, in words. */
function lastStep({ step, at, due, missed, reason }) {
  const late = step === "fired" && due && at - due >= 60_000 ? ` (${span(at - due)} late)` : "";
  const left = missed ? ` (${count(missed, "due time")})` : "";
  return `${step} ${day(at)}${late}${left}${reason ? `: ${named(reason)}` : ""}`;
}
