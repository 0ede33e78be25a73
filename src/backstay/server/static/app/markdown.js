// Markdown as Preact nodes. Tokens become elements directly, without HTML in between that could contain anything else.
import { MarkdownIt } from "../vendor/page.js";
import { Code } from "./code.js";
import { named } from "./format.js";
import { h, html, steady, useRef } from "./html.js";

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true });

// In a long block that grows, parse only the lines that changed. A link reference may be defined anywhere, so lines
// with brackets are always parsed again.
parser.core.ruler.at("inline", ({ tokens, md, env }) => {
  for (const token of tokens.filter(({ type }) => type === "inline")) {
    const known = env.known.get(token.content);
    if (known) token.children = known;
    else md.inline.parse(token.content, md, env, token.children);
    if (!token.content.includes("[")) env.read.set(token.content, token.children);
  }
});

// A task-list item is shown with a check box.
parser.core.ruler.push("boxes", ({ tokens }) => {
  for (const [place, { type, children }] of tokens.entries()) {
    const item = type === "inline" && tokens[place - 2]?.type === "list_item_open" ? tokens[place - 2] : null;
    const found = item && children[0]?.type === "text" && /^\[([ x])\](?= )/i.exec(children[0].content);
    if (!found) continue;
    item.attrSet("class", "box");
    children[0].content = (found[1] === " " ? "☐" : "☑") + children[0].content.slice(found[0].length);
  }
});

// The text of a link must not reorder the text around it, nor imitate another address.
parser.core.ruler.push("link_texts", ({ tokens }) => {
  for (const { children } of tokens.filter(({ type }) => type === "inline")) {
    let depth = 0;
    for (const token of children) {
      depth += { link_open: 1, link_close: -1 }[token.type] ?? 0;
      if (depth > 0 || token.type === "image") token.content = named(token.content);
    }
  }
});

const ELEMENTS = new Set(
  "p h1 h2 h3 h4 h5 h6 ul ol li blockquote strong em s table thead tbody tr th td hr br".split(" "),
);
const LISTS = new Set(["bullet_list_open", "ordered_list_open"]);
const EXPLAINS = /^ {0,3}\[[^\]]+\]:/m;
const NOTHING = { until: 0, blocks: null, text: "", lines: new Map() };
const SAFE_LINK = /^(?:https?:|mailto:)/i;

/** A text, complete or still growing (`live`). While it grows, finished blocks are never rendered again. */
export const Markdown = steady(function Markdown({ text, live = false }) {
  const frozen = useRef(NOTHING);
  // A link reference may be defined at the very end. Only then is a complete text rendered again as a whole.
  const continues = text.startsWith(frozen.current.text) && (live || !EXPLAINS.test(text));
  if (!continues || !frozen.current.blocks) frozen.current = { ...NOTHING, blocks: [] };
  const kept = frozen.current;
  const { blocks: tail, lines } = blocksOf(text.slice(kept.until), kept.lines);
  kept.lines = lines;
  const last = tail.at(-1);
  for (const { tokens } of tail.slice(0, -1)) kept.blocks.push(h(Block, { key: kept.blocks.length, tokens }));
  kept.until += last?.start ?? 0;
  kept.text = text.slice(0, kept.until);
  const end = last && h(Block, { key: kept.blocks.length, tokens: last.tokens, growing: live });
  return html`<div class="markdown">${kept.blocks}${end}</div>`;
});

const Block = steady(function Block({ tokens, growing = false }) {
  return LISTS.has(tokens[0].type) ? listOf(tokens, growing) : nodesOf(tokens, growing);
});

/** A list can be as long as an answer: while it grows, unchanged items are not rendered again. */
function listOf(tokens, growing) {
  const items = [];
  let depth = 0;
  for (const token of tokens.slice(1, -1)) {
    if (depth === 0) items.push([]);
    items.at(-1).push(token);
    depth += token.nesting;
  }
  // Whether the items are paragraphs depends on the whole list.
  const node = (item, key) => h(Item, { key, tokens: item, growing, source: `${item[1]?.hidden} ${item[0].meta}` });
  return element(tokens[0], items.map(node));
}

function Item({ tokens, growing }) {
  this.shouldComponentUpdate = (next) => !next.growing || next.source !== this.props.source;
  return nodesOf(tokens, growing);
}

/** The top-level blocks of a text with their offsets, and its parsed lines; `known` are lines parsed before. */
function blocksOf(text, known) {
  const env = { known, read: new Map() };
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  const blocks = [];
  let depth = 0;
  for (const token of parser.parse(text, env)) {
    if (depth === 0) blocks.push({ start: starts[token.map?.[0] ?? 0] ?? 0, tokens: [] });
    if (depth === 1 && token.type === "list_item_open") token.meta = text.slice(starts[token.map[0]], starts[token.map[1]]);
    blocks.at(-1).tokens.push(token);
    depth += token.nesting;
  }
  return { blocks, lines: env.read };
}

/** Convert tokens to nested nodes. */
function nodesOf(tokens, growing) {
  const open = [{ opening: null, children: [] }];
  for (const token of tokens) {
    if (token.nesting === 1) open.push({ opening: token, children: [] });
    else if (token.nesting === -1 && open.length > 1) {
      const { opening, children } = open.pop();
      open.at(-1).children.push(element(opening, children));
    } else open.at(-1).children.push(leaf(token, growing));
  }
  return open[0].children;
}

function element(token, children) {
  if (token.hidden) return children;
  if (token.tag === "a") return link(token.attrGet("href") ?? "", children);
  if (!ELEMENTS.has(token.tag)) return children;
  if (token.tag === "table") return wide(h("table", null, children));
  return h(token.tag, propertiesOf(token), children);
}

function propertiesOf(token) {
  // A list is aligned by the direction of its text.
  if (token.tag === "ul") return { dir: "auto" };
  if (token.tag === "ol") return { dir: "auto", start: Number(token.attrGet("start") ?? 1) };
  if (token.tag === "li") return token.attrGet("class") ? { class: "box" } : null;
  const side = /^text-align:(center|right)$/.exec(token.attrGet("style") ?? "");
  return side ? { class: side[1] } : null;
}

const wide = (table) => h("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Table" }, table);

function leaf(token, growing) {
  switch (token.type) {
    case "inline":
      return nodesOf(token.children);
    case "fence":
    case "code_block":
      return h(Code, { text: token.content, language: token.info.trim().split(/\s+/)[0] ?? "", growing });
    case "code_inline":
      return h("code", null, token.content);
    case "image":
      return picture(token.attrGet("src") ?? "", token.content);
    case "softbreak":
    case "hardbreak":
      return h("br");
    case "hr":
      return h("hr");
    default:
      return token.content;
  }
}

function link(href, children) {
  if (!SAFE_LINK.test(href)) return h("span", { title: "This link is not safe to open." }, children);
  return h("a", { href, dir: "auto", target: "_blank", rel: "noopener noreferrer nofollow", title: href }, children);
}

/** Images from other servers are not loaded: that would reveal what is read here, and when. */
function picture(source, alt) {
  return link(source, [`🖼 ${alt || "picture"}`]);
}
