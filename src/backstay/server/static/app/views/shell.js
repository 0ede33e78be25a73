// The shell: the list beside the conversation, and what lies over both.
import { html, useState } from "../html.js";
import { current, empty, leap, line, opened, passage, past, trouble } from "../room.js";
import { route } from "../route.js";
import { sheet, sidebar } from "../sheet.js";
import { sentence } from "../words.js";
import { Banners } from "./banner.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Header } from "./header.js";
import { Help } from "./help.js";
import { Lineage } from "./lineage.js";
import { Notices } from "./notices.js";
import { Search } from "./search.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Tags } from "./tags.js";
import { Welcome } from "./welcome.js";

const SHEETS = { help: Help, search: Search, settings: Settings, tags: Tags };

export function Shell() {
  const Sheet = SHEETS[sheet.value];
  return html`<div class="shell">
    <a class="skip" href="#message" onClick=${(event) => (event.preventDefault(), document.querySelector(".composer textarea")?.focus())}>Skip to the message</a>
    <${Sidebar} />
    ${sidebar.value && html`<div class="veil" onClick=${() => (sidebar.value = false)}></div>`}
    <main><${Header} /><${Banners} /><${Room} /></main>
    ${Sheet && html`<${Sheet} />`}
    ${!Sheet && html`<${Notices} />`}
  </div>`;
}

function Room() {
  const [nudge, setNudge] = useState(0);
  if (trouble.value) return html`<${Trouble} error=${trouble.value} />`;
  if (!current.value) return html`<div class="scroller"><${Welcome} /></div>`;
  if (!opened.value) return html`<div class="scroller"><p class="dim loading" role="status">Opening…</p></div>`;
  if (route.value.view === "lineage" && line.value) return html`<div class="scroller"><${Lineage} /></div>`;
  const editLast = () => !passage.value && (document.querySelector(".turn:last-of-type [aria-label^=Edit]")?.click(), setNudge(nudge + 1));
  return html`${empty.value ? html`<div class="scroller"><${Welcome} /></div>` : html`<${Conversation} key=${`${opened.value} ${past.value?.window ?? ""} ${leap.value}`} />`}
    ${!past.value && html`<${Composer} onEditLast=${editLast} />`}`;
}

function Trouble({ error }) {
  return html`<div class="scroller"><section class="welcome"><h1>${error.status === 404 ? "There is no such session" : "This session cannot be opened"}</h1>
    <p>${sentence(error.message)} ${error.unreachable ? "It is tried again by itself." : error.hint}</p><p><a href="#">Back to the beginning</a></p></section></div>`;
}
