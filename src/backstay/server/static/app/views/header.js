// The head of the conversation: what the session is called, whether we hear the server, and what can be done.
import { compact, destroy, end, file, fork, redo, save, undo } from "../actions.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { nameOf } from "../lines.js";
import { connection } from "../link.js";
import { line, past, running, waiting } from "../room.js";
import { go, route } from "../route.js";
import { sheet, sidebar } from "../sheet.js";
import { enterOr } from "../typing.js";

export function Header() {
  const session = line.value;
  const lineage = route.value.view === "lineage";
  return html`<header class="head">
    <button type="button" class="quiet only-narrow" aria-label="Show the list of sessions" onClick=${() => (sidebar.value = true)}><${Icon} name="menu" /></button>
    ${session ? html`<${Title} session=${session} />` : html`<span class="grow"></span>`}
    <${Connection} />
    ${session && html`<button type="button" class="quiet" aria-pressed=${lineage} aria-label="Lineage" title="Lineage: what became of this session" onClick=${() => go(session.id, lineage ? "" : "lineage")}><${Icon} name="lineage" /></button>
      <${Menu} session=${session} />`}
  </header>`;
}

const STATES = {
  connecting: ["Connecting…", "The page is about to hear from the server."],
  live: ["Live", "Everything is shown as it happens."],
  lost: ["Reconnecting…", "The server cannot be heard. What it accepted is safe; the page catches up by itself."],
  stranger: ["Signed out", "Sign in again with a link: backstay link"],
};

function Connection() {
  const { state } = connection.value;
  const [name, what] = STATES[state];
  return html`<span class=${`connection ${state}`} role="status" title=${what}><i aria-hidden="true"></i><span>${name}</span></span>`;
}

function Title({ session }) {
  const [editing, setEditing] = useState(null);
  const field = useRef(null);
  // A field that is taken away loses the keyboard, and says so: what it held was dealt with by then.
  const over = useRef(false);
  useEffect(() => field.current?.select(), [editing === null]);
  const begin = () => {
    over.current = false;
    setEditing(session.title ?? "");
  };
  const leave = () => {
    over.current = true;
    setEditing(null);
  };
  const keep = () => {
    if (!over.current && editing.trim() !== (session.title ?? "")) file(session.id, { title: editing.trim() || null });
    leave();
  };
  if (editing !== null) {
    return html`<input ref=${field} class="title grow" aria-label="Name of this session" value=${editing} onInput=${(event) => setEditing(event.target.value)} onBlur=${keep} onKeyDown=${enterOr(keep, leave)} />`;
  }
  return html`<h1 class="title grow"><button type="button" class="quiet one-line" dir="auto" title="Rename" onClick=${begin}>${nameOf(session)}</button>
    ${session.tags.map((tag) => html`<span class="badge" key=${tag}>#${tag}</span>`)}
    ${session.source && html`<a class="badge" href=${`#${session.source}`} title="The session this one was forked from">fork</a>`}</h1>`;
}

function Menu({ session }) {
  const box = useRef(null);
  const [shown, setShown] = useState(false);
  const idle = !running.value && !waiting.value.length && !past.value;
  useEffect(() => {
    if (!shown) return undefined;
    const away = (event) => !box.current.contains(event.target) && setShown(false);
    document.addEventListener("pointerdown", away);
    box.current.querySelector("[role=menuitem]")?.focus();
    return () => document.removeEventListener("pointerdown", away);
  }, [shown]);
  const items = [
    ["undo", "Undo the last turn", undo, idle],
    ["redo", "Redo", redo, idle],
    ["fork", "Fork this session", () => fork(), true],
    ["archive", "Summarise what came before", compact, idle],
    ["pin", session.pinned ? "Unpin" : "Pin", () => file(session.id, { pinned: !session.pinned }), true],
    ["tag", "Tags…", () => (sheet.value = "tags"), true],
    ["archive", session.archived ? "Take out of the archive" : "Archive", () => file(session.id, { archived: !session.archived }), true],
    ["save", "Export as a file", () => save(session.id), true],
    ["close", "End for good", () => confirm("End this session for good? It stays readable.") && end(session.id), session.state === "open"],
    ["trash", "Delete…", () => confirm("Delete this session and everything in it?") && destroy(session.id), true],
  ].filter(([, , , allowed]) => allowed);
  const keys = (event) => {
    const all = [...box.current.querySelectorAll("[role=menuitem]")];
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) (event.preventDefault(), all[(all.indexOf(document.activeElement) + by + all.length) % all.length]?.focus());
    if (event.key === "Escape" && shown) (event.stopPropagation(), setShown(false), box.current.querySelector("button").focus());
  };
  const left = ({ relatedTarget }) => relatedTarget && !box.current.contains(relatedTarget) && setShown(false);
  return html`<div class="menu" ref=${box} onKeyDown=${keys} onFocusOut=${left}>
    <button type="button" class="quiet" aria-label="More" aria-haspopup="menu" aria-expanded=${shown} onClick=${() => setShown(!shown)}><${Icon} name="more" /></button>
    ${shown && html`<div class="menu-items" role="menu" aria-label="This session">${items.map(([icon, name, act]) => html`
      <button type="button" role="menuitem" key=${name} onClick=${() => (setShown(false), act())}><${Icon} name=${icon} />${name}</button>`)}</div>`}
  </div>`;
}

