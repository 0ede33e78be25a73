// The header of the conversation: title, connection state and actions.
import { compact, destroy, downloadSession, end, fork, redo, undo, updateSession } from "../actions.js";
import { readChoice, setChoice } from "../devices.js";
import { openDialog, sidebar } from "../dialog_state.js";
import { connection } from "../event_stream.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { acceptOrCancel } from "../keyboard.js";
import { attempt } from "../notices.js";
import { currentSession, past, running, waiting } from "../open_session.js";
import { go, route } from "../route.js";
import { nameOf } from "../session_rows.js";

export function Header() {
  const session = currentSession.value;
  const lineage = route.value.view === "lineage";
  return html`<header class="head">
    <button type="button" class="quiet only-narrow" aria-label="Show the list of sessions" onClick=${() => (sidebar.value = true)}><${Icon} name="menu" /></button>
    ${session ? html`<${Title} session=${session} />` : html`<span class="grow"></span>`}
    <${Connection} />
    ${session && html`<button type="button" class="quiet" aria-pressed=${lineage} aria-label="Lineage" title="Lineage: versions of this conversation" onClick=${() => go(session.id, lineage ? "" : "lineage")}><${Icon} name="lineage" /></button>
      <${Menu} session=${session} />`}
  </header>`;
}

const STATES = {
  connecting: ["Connecting…", "Connecting to the server."],
  live: ["Live", "Connected: changes appear at once."],
  lost: ["Reconnecting…", "Can't reach the server. Sent messages are safe; reconnecting…"],
  "signed-out": ["Signed out", "Sign in again with a link from: backstay link"],
};

function Connection() {
  const { state } = connection.value;
  const [name, what] = STATES[state];
  return html`<span class=${`connection ${state}`} role="status" title=${what}><i aria-hidden="true"></i><span>${name}</span></span>`;
}

function Title({ session }) {
  const [editing, setEditing] = useState(null);
  const field = useRef(null);
  // A field also loses focus when it is removed; by then its text was already handled.
  const over = useRef(false);
  useEffect(() => field.current?.select(), [editing === null]);
  const begin = () => {
    over.current = false;
    setEditing(session.title ?? "");
  };
  const close = () => {
    over.current = true;
    setEditing(null);
  };
  const saveTitle = () => {
    if (!over.current && editing.trim() !== (session.title ?? "")) updateSession(session.id, { title: editing.trim() || null });
    close();
  };
  if (editing !== null) {
    return html`<input ref=${field} class="title grow" aria-label="Name of this session" value=${editing} onInput=${(event) => setEditing(event.target.value)} onBlur=${saveTitle} onKeyDown=${acceptOrCancel(saveTitle, close)} />`;
  }
  return html`<h1 class="title grow"><button type="button" class="quiet one-line" dir="auto" title="Rename" onClick=${begin}>${nameOf(session)}</button>
    ${session.tags.map((tag) => html`<span class="badge" key=${tag}>#${tag}</span>`)}
    ${session.source && html`<a class="badge" href=${`#${session.source}`} title="The session this one was forked from">fork</a>`}</h1>`;
}

function Menu({ session }) {
  const box = useRef(null);
  const [shown, setShown] = useState(false);
  const [told, setTold] = useState(null);
  const idle = !running.value && !waiting.value.length && !past.value;
  useEffect(() => {
    if (shown) readChoice(session.id).then(setTold, () => setTold(null));
  }, [shown, session.id]);
  const choose = (change) => attempt(() => setChoice(session.id, { ...told, ...change }));
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
    ["archive", "Summarise earlier messages", compact, idle],
    ["pin", session.pinned ? "Unpin" : "Pin", () => updateSession(session.id, { pinned: !session.pinned }), true],
    ["tag", "Tags…", () => (openDialog.value = "tags"), true],
    ["archive", session.archived ? "Unarchive" : "Archive", () => updateSession(session.id, { archived: !session.archived }), true],
    ["bell", told?.done ? "Do not notify when done" : "Notify when done", () => choose({ done: !told.done }), told],
    ["bell", told?.needs_you ? "Do not notify when I am needed" : "Notify when I am needed", () => choose({ needs_you: !told.needs_you }), told],
    ["save", "Export to a file", () => downloadSession(session.id), true],
    ["close", "Close session…", () => confirm("Close this session permanently? You can still read it.") && end(session.id), session.state === "open"],
    ["trash", "Delete…", () => confirm("Delete this session and all its messages?") && destroy(session.id), true],
  ].filter(([, , , allowed]) => allowed);
  const keys = (event) => {
    const all = [...box.current.querySelectorAll("[role=menuitem]")];
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) (event.preventDefault(), all[(all.indexOf(document.activeElement) + by + all.length) % all.length]?.focus());
    if (event.key === "Escape" && shown) (event.stopPropagation(), setShown(false), box.current.querySelector("button").focus());
  };
  const closeOnFocusOut = ({ relatedTarget }) => relatedTarget && !box.current.contains(relatedTarget) && setShown(false);
  return html`<div class="menu" ref=${box} onKeyDown=${keys} onFocusOut=${closeOnFocusOut}>
    <button type="button" class="quiet" aria-label="More" aria-haspopup="menu" aria-expanded=${shown} onClick=${() => setShown(!shown)}><${Icon} name="more" /></button>
    ${shown && html`<div class="menu-items" role="menu" aria-label="This session">${items.map(([icon, name, act]) => html`
      <button type="button" role="menuitem" key=${name} onClick=${() => (setShown(false), act())}><${Icon} name=${icon} />${name}</button>`)}</div>`}
  </div>`;
}

