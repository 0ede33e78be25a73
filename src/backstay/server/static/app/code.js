// A code block: with a copy button, and highlighted when it is complete and the browser is idle.
import { useCopy } from "./copy.js";
import { h, html, steady, useEffect, useState } from "./html.js";
import { Icon } from "./icon.js";

const MOST = 20_000;
// A map, not an object: a language could be named "constructor".
const ALIASES = new Map(Object.entries({ sh: "bash", shell: "bash", zsh: "bash", js: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", html: "xml", yml: "yaml", rs: "rust" }));
const PLAIN = { text: null, nodes: null };
let fetching = null;

export const Code = steady(function Code({ text, language, growing }) {
  const [copied, copy] = useCopy(text);
  const [coloured, setColoured] = useState(PLAIN);
  useEffect(() => {
    if (growing || coloured.text === text) return undefined;
    return enqueue(async () => setColoured({ text, nodes: await colouredNodes(text, language) }));
  }, [text, language, growing]);
  return html`<figure class="code">
    <figcaption>
      <span>${language || "text"}</span>
      <button type="button" class="quiet small" onClick=${copy}><${Icon} name=${copied ? "check" : "copy"} />${copied ? "Copied" : "Copy"}</button>
    </figcaption>
    <pre tabindex="0" role="region" aria-label=${`Code, ${language || "text"}`}><code>${coloured.text === text ? (coloured.nodes ?? text) : text}</code></pre>
  </figure>`;
});

/** The highlighted nodes; null if the language is unknown or the text too long. */
async function colouredNodes(text, name) {
  const language = ALIASES.get(name.toLowerCase()) ?? name.toLowerCase();
  if (!language || text.length > MOST) return null;
  fetching ??= import("../vendor/colours.js").then((module) => module.default);
  const colours = await fetching.catch(() => (fetching = null));
  if (!colours?.getLanguage(language)) return null;
  return colours.highlight(text, { language, ignoreIllegals: true })._emitter.root.children.map(spanOf);
}

/** Convert a node of the highlighter's own tree; its HTML is never used. */
const spanOf = (node) =>
  typeof node === "string" ? node : h("span", { class: `hl-${(node.scope ?? "").split(".")[0]}` }, node.children.map(spanOf));

// --- one block at a time ---------------------------------------------------------------------------------------------

const whenIdle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 30));
const queue = [];

/** Queue work for when the browser is idle and earlier work is done. Returns a function that removes it again. */
function enqueue(work) {
  queue.push(work);
  if (queue.length === 1) whenIdle(next, { timeout: 1000 });
  return () => queue.includes(work) && queue.splice(queue.indexOf(work), 1, () => {});
}

async function next() {
  try {
    await queue[0]();
  } catch (error) {
    console.error("a block of code could not be coloured", error); // The block stays plain, and the queue continues.
  } finally {
    queue.shift();
    if (queue.length) whenIdle(next, { timeout: 1000 });
  }
}
