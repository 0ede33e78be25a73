// The lineage: every window this session ever read, how each came to be, and a way to look at any of them.
import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { linesOf, nodesOf, STEP, toldOf, widthOf, withForks } from "../lineage.js";
import { nameOf } from "../lines.js";
import { line, lookBack, past } from "../room.js";
import { go } from "../route.js";
import { lines } from "../shelf.js";
import { day } from "../words.js";

export function Lineage() {
  const session = line.value;
  const [windows, setWindows] = useState(null);
  const forks = lines.value.order.filter((one) => one.source === session.id);
  useEffect(() => {
    Promise.all([windowsOf(session), ...forks.map(firstOf)]).then(([own, ...away]) => setWindows(withForks(own, away)), () => setWindows([]));
  }, [session.id, session.window, session.revision, forks.length]);
  if (!windows) return html`<div class="lineage"><p class="dim">Reading the lineage…</p></div>`;
  const nodes = nodesOf(windows, session.window);
  const width = widthOf(nodes);
  const look = (node) => {
    if (node.window.fork) return go(node.window.fork.id);
    go(session.id);
    if (node.current) return void (past.value = null);
    return lookBack(node.window.id, `${node.name.toLowerCase()}, ${day(node.window.at)}`);
  };
  const read = (window) => {
    go(session.id);
    lookBack(window.behind, `what was summarised, ${day(window.at)}`, window.behind_until);
  };
  return html`<section class="lineage" aria-label="Lineage">
    <h2>What became of this session</h2>
    <p class="dim">Nothing that was said is ever lost: undo, retry, edit and summaries open another window, and the earlier ones stay.</p>
    ${session.source && html`<p>Forked from <a href=${`#${session.source}`}>${nameOf(lines.value.byId.get(session.source))}</a>.</p>`}
    <div class="graph">
      <svg width=${width} height=${nodes.length * STEP} role="img" aria-label=${`${nodes.length} windows`}>
        ${linesOf(nodes).map(({ id, path, reason }) => html`<path key=${id} class=${`branch ${reason}`} d=${path} />`)}
        ${nodes.map((node) => html`<circle key=${node.window.id} class=${`node ${node.window.reason} ${node.current ? "now" : ""}`} cx=${node.x} cy=${node.y} r=${node.current ? 8 : 6} onClick=${() => look(node)}><title>${node.name}</title></circle>`)}
      </svg>
      <ol reversed>
        ${nodes.toReversed().map((node) => html`<li key=${node.window.id}>
          <button type="button" class="quiet" aria-current=${node.current ? "true" : null} onClick=${() => look(node)}>
            <span class="row"><strong>${node.name}</strong>${node.current && html`<span class="badge now">now</span>`}<time class="dim">${day(node.window.at)}</time></span>
            <span class="dim">${toldOf(node.window)}</span>
          </button>
          ${node.window.reason === "compaction" && html`<button type="button" class="small behind" aria-label="Read it: what was summarised" onClick=${() => read(node.window)}>Read it</button>`}</li>`)}
      </ol>
    </div>
  </section>`;
}

const windowsOf = async ({ id }) => (await get(`/api/sessions/${id}/lineage`)).windows;

/** A fork, and the window it began with. */
const firstOf = async (line) => ({ line, window: (await windowsOf(line))[0] });
