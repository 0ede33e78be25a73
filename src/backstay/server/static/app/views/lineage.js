// The lineage: every window of this session, how it came about, and a way to look at it.
import { get } from "../api.js";
import { day } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { descriptionOf, edgesOf, nodesOf, STEP, widthOf, withForks } from "../lineage.js";
import { currentSession, showWindow, past } from "../open_session.js";
import { go } from "../route.js";
import { sessionList } from "../session_list.js";
import { nameOf } from "../session_rows.js";

export function Lineage() {
  const session = currentSession.value;
  const [windows, setWindows] = useState(null);
  const forks = sessionList.value.order.filter((one) => one.source === session.id);
  useEffect(() => {
    Promise.all([windowsOf(session), ...forks.map(forkOf)]).then(([own, ...away]) => setWindows(withForks(own, away)), () => setWindows([]));
  }, [session.id, session.window, session.revision, forks.length]);
  if (!windows) return html`<div class="lineage"><p class="dim">Loading…</p></div>`;
  const nodes = nodesOf(windows, session.window);
  const width = widthOf(nodes);
  const look = (node) => {
    if (node.window.fork) return go(node.window.fork.id);
    go(session.id);
    if (node.current) return void (past.value = null);
    return showWindow(node.window.id, `${node.name.toLowerCase()}, ${day(node.window.at)}`);
  };
  const read = (window) => {
    go(session.id);
    showWindow(window.summarises, `summarised messages, ${day(window.at)}`, window.summarises_until);
  };
  return html`<section class="lineage" aria-label="Lineage">
    <h2>Versions of this conversation</h2>
    <p class="dim">Undo, retry, edit and summaries create a new version. Earlier versions are kept.</p>
    ${session.source && html`<p>Forked from <a dir="auto" href=${`#${session.source}`}>${nameOf(sessionList.value.byId.get(session.source))}</a>.</p>`}
    <div class="graph">
      <svg width=${width} height=${nodes.length * STEP} role="img" aria-label=${`${nodes.length} versions`}>
        ${edgesOf(nodes).map(({ id, path, reason }) => html`<path key=${id} class=${`branch ${reason}`} d=${path} />`)}
        ${nodes.map((node) => html`<circle key=${node.window.id} class=${`node ${node.window.reason} ${node.current ? "now" : ""}`} cx=${node.x} cy=${node.y} r=${node.current ? 8 : 6} onClick=${() => look(node)}><title>${node.name}</title></circle>`)}
      </svg>
      <ol reversed>
        ${nodes.toReversed().map((node) => html`<li key=${node.window.id}>
          <button type="button" class="quiet" aria-current=${node.current ? "true" : null} onClick=${() => look(node)}>
            <span class="row"><strong>${node.name}</strong>${node.current && html`<span class="badge now">now</span>`}<time class="dim">${day(node.window.at)}</time></span>
            <span class="dim">${descriptionOf(node.window)}</span>
          </button>
          ${node.window.reason === "compaction" && html`<button type="button" class="small summarised" aria-label="Read the summarised messages" onClick=${() => read(node.window)}>Read</button>`}</li>`)}
      </ol>
    </div>
  </section>`;
}

const windowsOf = async ({ id }) => (await get(`/api/sessions/${id}/lineage`)).windows;

/** A fork, and its first window. */
const forkOf = async (session) => ({ session, window: (await windowsOf(session))[0] });
