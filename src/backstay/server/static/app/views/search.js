// Search in all messages: results appear while typing, and open at the message.
import { get } from "../api.js";
import { openDialog } from "../dialog_state.js";
import { named, sentence, when } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { attempt } from "../notices.js";
import { current, seek, show } from "../open_session.js";
import { go } from "../route.js";
import { sessionList } from "../session_list.js";
import { nameOf } from "../session_rows.js";
import { Dialog } from "./dialog.js";

export function Search() {
  const [text, setText] = useState("");
  const [found, setFound] = useState({ hits: [], lag: 0, asked: "" });
  const [picked, setPicked] = useState(0);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  useEffect(() => {
    const words = text.trim();
    if (!words) return setFound({ hits: [], lag: 0, asked: "" });
    let over = false;
    const timer = setTimeout(async () => {
      const page = await get("/api/search", { q: words, limit: 30 }).catch((error) => ({ hits: [], lag: 0, error }));
      if (!over) (setFound({ ...page, asked: words }), setPicked(0));
    }, 120);
    return () => ((over = true), clearTimeout(timer));
  }, [text]);
  const matches = text.trim() ? byTitle(text) : sessionList.value.order.slice(0, 8);
  const rows = [...matches.map((session) => ({ session })), ...found.hits.map((hit) => ({ hit }))];
  const choose = (row) => {
    openDialog.value = null;
    if (row.session) return go(row.session.id);
    seek(row.hit.message, matchedWords(row.hit.snippet));
    if (row.hit.session !== current.value) return go(row.hit.session, "at", row.hit.message);
    go(current.value);
    return attempt(() => show(row.hit.message));
  };
  const keys = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) (event.preventDefault(), setPicked((picked + by + rows.length) % Math.max(1, rows.length)));
    // By default, Esc only clears a search field.
    if (event.key === "Escape") (event.preventDefault(), (openDialog.value = null));
    if (event.key === "Enter" && rows[picked]) (event.preventDefault(), choose(rows[picked]));
  };
  return html`<${Dialog} title="Search" kind="search">
    <input ref=${field} type="search" aria-label="Search all messages" placeholder="Search messages…" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${`found-${picked}`} />
    <ul class="hits" id="found" role="listbox" aria-label="Results">
      ${rows.map((row, place) => html`<li key=${row.session?.id ?? row.hit.message} id=${`found-${place}`} role="option" aria-selected=${place === picked} onClick=${() => choose(row)} onMouseMove=${() => picked !== place && setPicked(place)}>
        ${row.session ? html`<span class="one-line" dir="auto">${nameOf(row.session)}</span><span class="dim">${when(row.session.active_at)}</span>` : html`<${Hit} hit=${row.hit} />`}
      </li>`)}
    </ul>
    <p class="dim" role="status">${statusOf(text, found, rows)}</p>
  <//>`;
}

function statusOf(text, { error, lag, asked }, rows) {
  if (error) return sentence(error.message);
  if (!text.trim()) return "Recent sessions";
  const missing = lag ? ` Messages not indexed yet: ${lag}.` : "";
  return asked === text.trim() && !rows.length ? `No results.${missing}` : missing;
}

const byTitle = (text) => {
  const words = text.trim().toLowerCase();
  return sessionList.value.order.filter((session) => session.title?.toLowerCase().includes(words)).slice(0, 5);
};

function Hit({ hit }) {
  return html`<span class="hit-head"><span class="one-line grow" dir="auto">${hit.title ? named(hit.title) : nameOf(sessionList.value.byId.get(hit.session))}</span><span class="dim">${hit.role === "user" ? "you" : "answer"} · ${when(hit.at)}</span></span>
    <span class="snippet" dir="auto">${marked(hit.snippet)}</span>`;
}

/** The matching words of a snippet. */
const matchedWords = ({ text, marks }) => [...new Set(marks.map(([from, to]) => [...text].slice(from, to).join("").toLowerCase()))];

/** The snippet with its matches highlighted. The marks count code points, as Python does. */
function marked({ text, marks }) {
  const letters = [...text];
  const out = [];
  let at = 0;
  for (const [from, to] of marks) {
    out.push(letters.slice(at, from).join(""), html`<mark>${letters.slice(from, to).join("")}</mark>`);
    at = to;
  }
  return [...out, letters.slice(at).join("")];
}
