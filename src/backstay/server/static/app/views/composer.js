// The composer: the input field; while a turn runs, also how to submit (queue, steer, …).
import { sendMessage, stop } from "../actions.js";
import { commandOf, suggested } from "../commands.js";
import { draftOf, fetchDraft, sent, write } from "../draft.js";
import { isolated, named, size } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { composing } from "../keyboard.js";
import { showNotice } from "../notices.js";
import { cancelling, closed as shut, current, currentSession, running } from "../open_session.js";
import { about, mainAgent } from "../server.js";
import { attach, drop, filesOf, partsOf } from "../uploads.js";
import { Queue } from "./queue.js";

const SUBMIT_MODES = [
  ["enqueue", "Queue", "Sent next, when this answer has ended"],
  ["steer", "Steer", "Sent to the agent now, while it works"],
  ["replace", "Replace", "Stops this answer; its text is kept"],
  ["fork", "Fork", "Sent in a copy; this answer continues"],
];

export function Composer({ onEditLast }) {
  const session = current.value;
  const text = session ? draftOf(session) : "";
  const files = filesOf(session);
  const field = useRef(null);
  // Enter was pressed while a message was being sent: the present text is sent after it.
  const post = useRef({ busy: false, again: false });
  const [way, setWay] = useState("enqueue");
  const [chosen, setChosen] = useState(null);
  const [sending, setSending] = useState("");
  const [picked, setPicked] = useState(0);
  const [dismissed, setDismissed] = useState(null);
  const busy = Boolean(running.value);
  const closed = shut.value;
  const offered = text === dismissed ? [] : suggested(text);
  const agents = about.value?.facts.agents ?? [];
  // The last agent of the session, unless another is chosen or the server does not have it.
  const agent = chosen ?? (agents.includes(currentSession.value?.agent) ? currentSession.value.agent : mainAgent());
  useEffect(() => {
    setChosen(null);
    if (session) fetchDraft(session);
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
  }, [session]);
  useEffect(() => grow(field.current), [text]);
  // A choice applies to one answer only.
  useEffect(() => setWay("enqueue"), [busy]);

  const send = async () => {
    const written = draftOf(session);
    const words = written.trim();
    const brought = filesOf(session);
    const ready = brought.filter((file) => file.blob);
    if (ready.length < brought.length) return showNotice("A file is still uploading.");
    if (!words && !ready.length) return;
    if (post.current.busy) return void (post.current.again = true);
    const typed = commandOf(words);
    if (typed && !ready.length) {
      write(session, "");
      return typed.command.run(typed.rest);
    }
    post.current.busy = true;
    setSending("Sending…");
    try {
      const parts = [...(words ? [{ type: "text", text: words }] : []), ...partsOf(ready)];
      const content = ready.length ? { parts } : { text: words };
      const onRetry = () => setSending("Can't reach the server. Your message is sent as soon as it is back.");
      await sendMessage(session, content, { agent: agents.includes(agent) ? agent : undefined, ifBusy: busy ? way : "enqueue", onRetry });
      for (const file of ready) drop(file.id);
      sent(session, written);
    } catch (error) {
      post.current.again = false;
      showNotice(error);
    } finally {
      post.current.busy = false;
      setSending("");
      if (mayFocus(field.current)) field.current.focus();
    }
    if (!post.current.again) return;
    post.current.again = false;
    send();
  };

  const keys = (event) => {
    if (composing(event)) return;
    const { key, shiftKey } = event;
    if (offered.length && (key === "ArrowDown" || key === "ArrowUp")) {
      event.preventDefault();
      setPicked((picked + (key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length);
    } else if (offered.length && (key === "Tab" || (key === "Enter" && text.slice(1) !== offered[picked]?.name))) {
      event.preventDefault();
      write(session, `/${offered[Math.min(picked, offered.length - 1)].name}`);
      setPicked(0);
    } else if (offered.length && key === "Escape") {
      event.stopPropagation();
      setDismissed(text);
    } else if (key === "Enter" && !shiftKey) {
      event.preventDefault();
      send();
    } else if (key === "ArrowUp" && !text) {
      event.preventDefault();
      onEditLast();
    }
  };
  const paste = (event) => {
    const { files: found } = event.clipboardData;
    // Table cells are pasted as text and as an image: use the text.
    if (found.length && !event.clipboardData.getData("text/plain")) (event.preventDefault(), attach(session, found));
  };

  return html`<section class="composer" aria-label="Write">
    <${Queue} />
    ${offered.length > 0 && html`<ul class="offered" role="listbox" aria-label="Commands" id="offered" tabindex="0">
      ${offered.map((command, key) => html`<li key=${command.name} role="option" aria-selected=${key === picked} ref=${(item) => key === picked && item?.scrollIntoView({ block: "nearest" })} onMouseDown=${(event) => (event.preventDefault(), write(session, `/${command.name} `))}>
        <code>/${command.name}</code><span>${command.what}</span></li>`)}
    </ul>`}
    <div class="box">
      ${files.length > 0 && html`<ul class="files" aria-label="Files">${files.map((file) => html`<li class="chip" key=${file.id}>
        <${Icon} name="clip" /><span dir="auto">${named(file.name)}</span><span class="dim">${file.blob ? size(file.size) : `${Math.round((100 * file.done) / file.size)} %`}</span>
        <button type="button" class="quiet" aria-label=${`Remove ${isolated(file.name)}`} onClick=${() => drop(file.id)}><${Icon} name="close" /></button></li>`)}</ul>`}
      <textarea ref=${field} rows="1" placeholder=${closed ? "This session is closed" : busy ? "Write a message while it answers…" : "Write a message…"}
        aria-label="Message" aria-controls=${offered.length ? "offered" : null} disabled=${closed || !session} value=${text}
        onInput=${(event) => write(session, event.target.value)} onKeyDown=${keys} onPaste=${paste}></textarea>
      <div class="row">
        <label class="quiet attach" title="Attach files"><${Icon} name="clip" /><span class="unseen">Attach files</span>
          <input type="file" multiple class="unseen" disabled=${closed} onChange=${(event) => (attach(session, event.target.files), (event.target.value = ""))} /></label>
        ${agents.length > 1 && html`<select aria-label="Agent for this message" value=${agent} onChange=${(event) => setChosen(event.target.value)}>
          ${agents.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>`}
        ${busy && html`<div class="ways" role="radiogroup" aria-label="While it answers">${SUBMIT_MODES.map(([value, name, what]) => html`
          <label key=${value} title=${what} class=${way === value ? "on" : ""}><input type="radio" name="way" value=${value} checked=${way === value} onChange=${() => setWay(value)} />${name}</label>`)}</div>`}
        <span class="grow dim sending" role="status">${sending}</span>
        ${busy && html`<button type="button" class="round" aria-label="Stop the answer" title="Stop the answer (Esc)" disabled=${cancelling.value} onClick=${stop}><${Icon} name="stop" /></button>`}
        <button type="button" class="round primary" aria-label="Send" title="Send (Enter)" disabled=${closed || Boolean(sending) || (!text.trim() && !files.length)} onClick=${send}><${Icon} name="send" /></button>
      </div>
    </div>
  </section>`;
}

/** Whether the focus is still in the composer, or nowhere: do not take it from another place. */
const mayFocus = (field) => field && (document.activeElement === document.body || field.closest(".composer").contains(document.activeElement));

/** Fit the height to the text, up to a third of the window. */
function grow(field) {
  if (!field) return;
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, innerHeight / 3)}px`;
}

