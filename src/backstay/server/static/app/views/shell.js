// The layout: the session list beside the conversation, and the layers above them.
import { openDialog, sidebar } from "../dialog_state.js";
import { sentence } from "../format.js";
import { html, useState } from "../html.js";
import { current, currentSession, empty, jumpCount, opened, openError, passage, past } from "../open_session.js";
import { route } from "../route.js";
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

const DIALOGS = { help: Help, search: Search, settings: Settings, tags: Tags };

export function Shell() {
  const Dialog = DIALOGS[openDialog.value];
  return html`<div class="shell">
    <a class="skip" href="#message" onClick=${(event) => (event.preventDefault(), document.querySelector(".composer textarea")?.focus())}>Skip to the message field</a>
    <${Sidebar} />
    ${sidebar.value && html`<div class="veil" onClick=${() => (sidebar.value = false)}></div>`}
    <main><${Header} /><${Banners} /><${SessionView} /></main>
    ${Dialog && html`<${Dialog} />`}
    ${!Dialog && html`<${Notices} />`}
  </div>`;
}

function SessionView() {
  const [nudge, setNudge] = useState(0);
  if (openError.value) return html`<${OpenError} error=${openError.value} />`;
  if (!current.value) return html`<div class="scroller"><${Welcome} /></div>`;
  if (!opened.value) return html`<div class="scroller"><p class="dim loading" role="status">Opening…</p></div>`;
  if (route.value.view === "lineage" && currentSession.value) return html`<div class="scroller"><${Lineage} /></div>`;
  const editLast = () => !passage.value && (document.querySelector(".turn:last-of-type [aria-label^=Edit]")?.click(), setNudge(nudge + 1));
  return html`${empty.value ? html`<div class="scroller"><${Welcome} /></div>` : html`<${Conversation} key=${`${opened.value} ${past.value?.window ?? ""} ${jumpCount.value}`} />`}
    ${!past.value && html`<${Composer} onEditLast=${editLast} />`}`;
}

function OpenError({ error }) {
  return html`<div class="scroller"><section class="welcome"><h1>${error.status === 404 ? "Session not found" : "This session can't be opened"}</h1>
    <p>${sentence(error.message)} ${error.unreachable ? "Retrying…" : error.hint}</p><p><a href="#">Back to the start page</a></p></section></div>`;
}
