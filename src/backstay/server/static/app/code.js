// A block of code: copied with a button, coloured when it is whole and the browser has nothing better to do.
import { useCopy } from "./copy.js";
import { h, html, steady, useEffect, useState } from "./html.js";
import { Icon } from "./icon.js";

const MOST = 20_000;
const ALIASES = { sh: "bash", shell: "bash", zsh: "bash", js: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", html: "xml", yml: "yaml", rs: "rust" };
const PLAIN = { text: null, nodes: null };
let fetching = null;

export const Code = steady(function Code({ text, language, growing }) {
  const [copied, copy] = useCopy(text);
  const [coloured, setColoured] = useState(PLAIN);
  useEffect(() => {
    if (growing || coloured.text === text) return undefined;
    return inTurn(async () => setColoured({ text, nodes: await colouredNodes(text, language) }));
  }, [text, language, growing]);
  return html`<figure class="code">
    <figcaption>
      <span>${language || "text"}</span>
      <button type="button" class="quiet small" onClick=${copy}><${Icon} name=${copied ? "check" : "copy"} />${copied ? "Copied" : "Copy"}</button>
    </figcaption>
    <pre tabindex="0" role="region" aria-label=${`Code, ${language || "text"}`}><code>${coloured.text === text ? (coloured.nodes ?? text) : text}</code></pre>
  </figure>`;
});

/** The text in colours; nothing if it is in no language that is known, or too long. */
async function colouredNodes(text, told) {
  const language = ALIASES[told.toLowerCase()] ?? told.toLowerCase();
  if (!language || text.length > MOST) return null;
  fetching ??= import("../vendor/colours.js").then((module) => module.default);
  const colours = await fetching.catch(() => (fetching = null));
  if (!colours?.getLanguage(language)) return null;
  return colours.highlight(text, { language, ignoreIllegals: true })._emitter.root.children.map(spanOf);
}

/** A node of the highlighter's own tree; never its HTML. */
const spanOf = (node) =>
  typeof node === "string" ? node : h("span", { class: `hl-${(node.scope ?? "").split(".")[0]}` }, node.children.map(spanOf));

// --- one block at a time --------------------------------------------------------------------------------------------------

const whenIdle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 30));
const line = [];

/** Do something when the browser is idle and what stood in line before is done; what is returned takes it out again. */
function inTurn(work) {
  line.push(work);
  if (line.length === 1) whenIdle(next, { timeout: 1000 });
  return () => line.includes(work) && line.splice(line.indexOf(work), 1, () => {});
}

async function next() {
  await line[0]();
  line.shift();
  if (line.length) whenIdle(next, { timeout: 1000 });
}
