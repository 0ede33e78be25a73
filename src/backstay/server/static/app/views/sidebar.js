// The sidebar: sessions by day, newest first. Only visible rows are rendered, however many there are.
import { create } from "../actions.js";
import { openDialog, sidebar } from "../dialog_state.js";
import { plain, when } from "../format.js";
import { html, steady, useEffect, useMemo, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { attempt } from "../notices.js";
import { current } from "../open_session.js";
import { go } from "../route.js";
import { about, isScripted } from "../server.js";
import { agents, badges, filter, loaded, loadMore, markOf, minute, places, sessionList, tags } from "../session_list.js";
import { nameOf, placeOf, readTo, rowsOf } from "../session_rows.js";

const HEADING = 34;
const ROW = 56;
const MARKS = { asks: "Needs approval", running: "Running", troubled: "Failed or interrupted, unread", unread: "Unread" };

export function Sidebar() {
  return html`<nav class=${`sidebar ${sidebar.value ? "shown" : ""}`} aria-label="Sessions">
    <header>
      <a class="brand" href="#" onClick=${() => (sidebar.value = false)}><img src="/static/mark.svg" alt="" width="24" height="24" />Backstay</a>
      <button type="button" class="quiet" aria-label="New session" title="New session" onClick=${() => attempt(create)}><${Icon} name="plus" /></button>
      <button type="button" class="quiet only-narrow" aria-label="Close the list" onClick=${() => (sidebar.value = false)}><${Icon} name="close" /></button>
    </header>
    <button type="button" class="find" onClick=${() => (openDialog.value = "search")}><${Icon} name="search" /><span class="grow">Search</span><kbd>Ctrl K</kbd></button>
    <${Filters} />
    <${List} />
    <footer>
      <button type="button" class="quiet wide" onClick=${() => (openDialog.value = "settings")}><${Icon} name="settings" />
        <span class="one-line grow">${agentLabel()}</span></button>
      <button type="button" class="quiet" aria-label="Help" title="Help (?)" onClick=${() => (openDialog.value = "help")}><${Icon} name="help" /></button>
    </footer>
  </nav>`;
}

const agentLabel = () => {
  const agents = about.value?.facts.agents ?? [];
  return agents.length === 1 && isScripted(agents[0]) ? "Scripted agent" : agents.join(", ") || "Settings";
};

function Filters() {
  const chosen = filter.value;
  const set = (change) => (filter.value = { ...chosen, ...change });
  return html`<div class="filters" role="group" aria-label="Show only">
    <button type="button" aria-pressed=${chosen.state === "running"} onClick=${() => set({ state: chosen.state ? null : "running" })}>Running</button>
    <button type="button" aria-pressed=${Boolean(chosen.archived)} onClick=${() => set({ archived: !chosen.archived })}>Archived</button>
    <${Choice} name="Agent" any="Any agent" values=${agents.value.length > 1 ? agents.value : []} chosen=${chosen.agent} onChoose=${(agent) => set({ agent })} />
    <${Choice} name="Workspace or platform" any="Anywhere" values=${places.value} chosen=${chosen.place} onChoose=${(place) => set({ place })} />
    <${Choice} name="Tag" any="Any tag" values=${tags.value} chosen=${chosen.tag} onChoose=${(tag) => set({ tag })} />
  </div>`;
}

/** A select box for a filter; hidden if there is nothing to choose. */
function Choice({ name, any, values, chosen, onChoose }) {
  if (!values.length && !chosen) return null;
  const all = chosen && !values.includes(chosen) ? [chosen, ...values] : values;
  return html`<select class=${chosen ? "on" : ""} aria-label=${name} value=${chosen ?? ""} onChange=${(event) => onChoose(event.target.value || null)}>
    <option value="">${any}</option>${all.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}
  </select>`;
}

function List() {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const now = minute.value;
  const today = new Date(now).setHours(0, 0, 0, 0);
  const rows = useMemo(() => rowsOf(sessionList.value, filter.value, today), [sessionList.value, filter.value, today]);
  const tops = topsOf(rows);
  const whole = tops.at(-1);
  useEffect(() => {
    const here = box.current;
    const look = () => setView({ top: here.scrollTop, height: here.clientHeight });
    const sized = new ResizeObserver(look);
    sized.observe(here);
    here.addEventListener("scroll", look, { passive: true });
    return () => (sized.disconnect(), here.removeEventListener("scroll", look));
  }, []);
  const { next } = readTo(sessionList.value, filter.value);
  // main.js loads the first page without a filter; this loads it for a filter, and further pages.
  useEffect(() => {
    const { state, ...chosen } = filter.value;
    const wanted = next === undefined ? Object.values(chosen).some(Boolean) : next && !state;
    if (wanted && whole < view.top + view.height * 2) attempt(loadMore);
  }, [view, whole, next, filter.value]);
  const first = tops.findIndex((top, place) => tops[place + 1] > view.top - 300);
  const past = tops.findIndex((top) => top > view.top + view.height + 300);
  const shown = rows.slice(Math.max(0, first), past < 0 ? rows.length : past);
  const walk = (event) => step(event, box.current);
  return html`<div class="list" ref=${box} role="list" aria-label="Sessions" onKeyDown=${walk}>
    ${loaded.value && !rows.length && html`<p class="dim empty">${Object.values(filter.value).some(Boolean) ? filter.value.state === "running" ? "No running sessions." : "No sessions match the filter." : "No sessions yet."}</p>`}
    <div class="rows" style=${{ height: `${whole}px` }}>
      ${shown.map((row, place) => {
        const style = { transform: `translateY(${tops[Math.max(0, first) + place]}px)` };
        if (row.heading) return html`<div key=${row.heading} class="row-heading" role="presentation" style=${style}>${row.heading}</div>`;
        const { session } = row;
        const open = current.value === session.id;
        return html`<div key=${session.id} class="row-slot" role="listitem" style=${style}><${SessionRow} session=${session} time=${when(session.active_at, now)} open=${open} mark=${markOf(session, badges.value.get(session.id), open)} draft=${Boolean(badges.value.get(session.id)?.draft)} /></div>`;
      })}
    </div>
  </div>`;
}

function topsOf(rows) {
  const tops = [0];
  for (const row of rows) tops.push(tops.at(-1) + (row.heading ? HEADING : ROW));
  return tops;
}

const SessionRow = steady(function SessionRow({ session, time, open, mark, draft }) {
  const show = () => {
    sidebar.value = false;
    go(session.id);
  };
  return html`<button type="button" class=${`session-row ${mark ?? ""}`} aria-current=${open ? "page" : null} onClick=${show}>
    <span class="session-name"><span class="one-line grow" dir="auto">${nameOf(session)}</span>
      ${session.pinned && html`<${Icon} name="pin" />`}<time>${time}</time></span>
    <span class="session-brief"><span class="one-line grow" dir="auto">${briefOf(session, draft && !open)}</span>
      ${mark && html`<span class=${`mark ${mark}`} role="img" aria-label=${MARKS[mark]} title=${MARKS[mark]}></span>`}</span>
  </button>`;
});

/** The second line of a row: whether there is a draft, and the last message; or tags, origin and agent. */
function briefOf(session, draft) {
  const about = [...session.tags.map((tag) => `#${tag}`), placeOf(session), session.agent].filter(Boolean);
  const words = session.title && session.preview ? [plain(session.preview)] : about;
  return [...(draft ? ["Draft"] : []), ...words].join(" · ");
}

/** Arrow keys move between rows. */
function step(event, box) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const all = [...box.querySelectorAll(".session-row")];
  all[all.indexOf(document.activeElement) + by]?.focus();
}
