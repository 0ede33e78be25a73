// A block of code: copied with a button, coloured once the highlighter is here.
import { signal } from "../vendor/page.js";
import { h, html, steady, useState } from "./html.js";
import { Icon } from "./icon.js";

const MOST = 20_000;
const ALIASES = { sh: "bash", shell: "bash", zsh: "bash", js: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", py: "python", html: "xml", yml: "yaml", rs: "rust" };
const colours = signal(null);
let fetching = null;

function fetchColours() {
  fetching ??= import("../vendor/colours.js").then((module) => (colours.value = module.default), () => {});
}

export const Code = steady(function Code({ text, language }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<figure class="code">
    <figcaption>
      <span>${language || "text"}</span>
      <button type="button" class="quiet small" onClick=${copy}><${Icon} name=${copied ? "check" : "copy"} />${copied ? "Copied" : "Copy"}</button>
    </figcaption>
    <pre tabindex="0" role="region" aria-label=${`Code, ${language || "text"}`}><code>${coloured(text, language)}</code></pre>
  </figure>`;
});

function coloured(text, told) {
  const language = ALIASES[told.toLowerCase()] ?? told.toLowerCase();
  if (!language || text.length > MOST) return text;
  if (!colours.value) {
    fetchColours();
    return text;
  }
  if (!colours.value.getLanguage(language)) return text;
  return (colours.value.highlight(text, { language, ignoreIllegals: true })._emitter.root.children).map(spanOf);
}

/** A node of the highlighter's own tree; never its HTML. */
const spanOf = (node) =>
  typeof node === "string" ? node : h("span", { class: `hl-${(node.scope ?? "").split(".")[0]}` }, node.children.map(spanOf));

