// The sidebar: sessions by day, newest first. However many there are, only those in view are drawn.
import { create } from "../actions.js";
import { html, steady, useEffect, useMemo, useRef, useState } from "../html.js";
import { Icon } from "../icon.js";
import { nameOf, placeOf, readTo, rowsOf } from "../lines.js";
import { attempt } from "../notices.js";
import { current } from "../room.js";
import { go } from "../route.js";
import { about, isScripted } from "../server.js";
import { sheet, sidebar } from "../sheet.js";
import { agents, filter, glances, lines, loaded, markOf, minute, more, places, tags } from "../shelf.js";
import { plain, when } from "../words.js";

const HEADING = 34;
const ROW = 56;
const MARKS = { asks: "Asks for your approval", running: "Running", troubled: "Ended in trouble, unread", unread: "Unread" };

export function Sidebar() {
  return html`<nav class=${`sidebar ${sidebar.value ? "shown" : ""}`} aria-label="Sessions">
    <header>
      <a class="brand" href="#" onClick=${() => (sidebar.value = false)}><img src="/static/mark.svg" alt="" width="24" height="24" />Backstay</a>
      <button type="button" class="quiet" aria-label="New session" title="New session" onClick=${() => attempt(create)}><${Icon} name="plus" /></button>
      <button type="button" class="quiet only-narrow" aria-label="Close the list" onClick=${() => (sidebar.value = false)}><${Icon} name="close" /></button>
    </header>
    <button type="button" class="find" onClick=${() => (sheet.value = "search")}><${Icon} name="search" /><span class="grow">Search</span><kbd>Ctrl K</kbd></button>
    <${Filters} />
    <${List} />
    <footer>
      <button type="button" class="quiet wide" onClick=${() => (sheet.value = "settings")}><${Icon} name="settings" />
        <span class="one-line grow">${who()}</span></button>
      <button type="button" class="quiet" aria-label="Help" title="Help (?)" onClick=${() => (sheet.value = "help")}><${Icon} name="help" /></button>
    </footer>
  </nav>`;
}

const who = () => {
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

/** One of several values, or any; shown where there is something to choose. */
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
  const rows = useMemo(() => rowsOf(lines.value, filter.value, today), [lines.value, filter.value, today]);
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
  const { next } = readTo(lines.value, filter.value);
  // The first page is asked for where the page begins, and again for whatever is chosen here.
  useEffect(() => {
    const { state, ...chosen } = filter.value;
    const wanted = next === undefined ? Object.values(chosen).some(Boolean) : next && !state;
    if (wanted && whole < view.top + view.height * 2) attempt(more);
  }, [view, whole, next, filter.value]);
  const first = tops.findIndex((top, place) => tops[place + 1] > view.top - 300);
  const past = tops.findIndex((top) => top > view.top + view.height + 300);
  const shown = rows.slice(Math.max(0, first), past < 0 ? rows.length : past);
  const walk = (event) => step(event, box.current);
  return html`<div class="list" ref=${box} role="list" aria-label="Sessions" onKeyDown=${walk}>
    ${loaded.value && !rows.length && html`<p class="dim empty">${Object.values(filter.value).some(Boolean) ? "Nothing here. Show more with the buttons above." : "No sessions yet."}</p>`}
    <div class="rows" style=${{ height: `${whole}px` }}>
      ${shown.map((row, place) => {
        const style = { transform: `translateY(${tops[Math.max(0, first) + place]}px)` };
        if (row.heading) return html`<div key=${row.heading} class="row-heading" role="presentation" style=${style}>${row.heading}</div>`;
        const { line } = row;
        const open = current.value === line.id;
        return html`<div key=${line.id} class="row-slot" role="listitem" style=${style}><${Line} line=${line} time=${when(line.active_at, now)} open=${open} mark=${markOf(line, glances.value.get(line.id), open)} draft=${Boolean(glances.value.get(line.id)?.draft)} /></div>`;
      })}
    </div>
  </div>`;
}

function topsOf(rows) {
  const tops = [0];
  for (const row of rows) tops.push(tops.at(-1) + (row.heading ? HEADING : ROW));
  return tops;
}

const Line = steady(function Line({ line, time, open, mark, draft }) {
  const show = () => {
    sidebar.value = false;
    go(line.id);
  };
  return html`<button type="button" class=${`line ${mark ?? ""}`} aria-current=${open ? "page" : null} onClick=${show}>
    <span class="line-name"><span class="one-line grow" dir="auto">${nameOf(line)}</span>
      ${line.pinned && html`<${Icon} name="pin" />`}<time>${time}</time></span>
    <span class="line-brief"><span class="one-line grow" dir="auto">${briefOf(line, draft && !open)}</span>
      ${mark && html`<span class=${`mark ${mark}`} role="img" aria-label=${MARKS[mark]} title=${MARKS[mark]}></span>`}</span>
  </button>`;
});

/** What a line tells below its name: that a draft waits, and what was said last; or where it comes from and whose it is. */
function briefOf(line, draft) {
  const about = [...line.tags.map((tag) => `#${tag}`), placeOf(line), line.agent].filter(Boolean);
  const words = line.title && line.preview ? [plain(line.preview)] : about;
  return [...(draft ? ["Draft"] : []), ...words].join(" · ");
}

/** Up and down go from line to line. */
function step(event, box) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const all = [...box.querySelectorAll(".line")];
  all[all.indexOf(document.activeElement) + by]?.focus();
}
