// The conversation: the turns of the open session; the view follows the end unless the reader has scrolled away.
import { html, useEffect, useMemo, useNodes, useState } from "../html.js";
import { Icon } from "../icon.js";
import { above, newer, older, passage, past, sessionState, target, showPresent } from "../open_session.js";
import { useTail } from "../scroll.js";
import { Turn } from "./turn.js";

const CLOSED = {
  ended: "This session is closed. You can still read it.",
  expired: "This session has expired. You can still read it.",
  deleted: "This session was deleted. This view closes when you leave.",
};

export function Conversation() {
  const far = !past.value && Boolean(passage.value);
  const shown = past.value?.state ?? passage.value?.state ?? sessionState.value;
  const [editing, setEditing] = useState(null);
  const { entries, top, running, waiting } = shown;
  const topKey = `${top.window}.${top.position}`;
  const { box, away, toEnd, stopFollowing } = useTail(shown, topKey, older, far ? newer : null);
  const idle = !running && !waiting.length && !shown.closed;
  const more = Boolean(above(top));
  useEffect(() => setEditing(null), [shown.session]);
  useEffect(() => scrollToTarget(box.current, target.value, stopFollowing), [target.value, target.value && shown]);
  useEffect(() => {
    if (more && box.current.scrollHeight <= box.current.clientHeight) older();
  }, [topKey]);
  const settled = useSettled(entries);
  const turnOf = useNodes(Turn);
  const frozen = Boolean(past.value) || shown.closed === "deleted";
  return html`<div class="scroller" ref=${box} tabindex="0" role="region" aria-label="Conversation">
    <div class="messages">
      ${more ? html`<p class="earlier dim">Earlier messages load as you scroll up…</p>` : html`<p class="earlier dim">Start of this session</p>`}
      ${entries.map((entry, place) => turnOf(entry, entry.turn ?? `m${place}`, {
        entry,
        frozen,
        last: !far && place === entries.length - 1,
        idle: idle && !far && place === entries.length - 1,
        editing: Boolean(entry.input) && editing === entry.input.id,
        onEdit: setEditing,
      }))}
      ${far && html`<p class="later dim">Later messages load as you scroll down…</p>`}
      ${shown.closed && !far && html`<p class="closed dim">${CLOSED[shown.closed]}</p>`}
    </div>
    ${away && html`<button type="button" class="latest" onClick=${far ? showPresent : toEnd}><${Icon} name="down" /> Jump to latest</button>`}
    <div class="unseen" role="status" aria-live="polite">${settled}</div>
  </div>`;
}

/** The announcement for screen readers: once per answer, not for each word. */
function useSettled(entries) {
  const last = entries.at(-1);
  const state = last ? `${last.turn} ${last.state}` : "";
  return useMemo(() => {
    if (!last?.agent) return "";
    if (last.state === "running") return `${last.agent} is answering.`;
    const words = last.steps.filter((step) => step.type === "text").map((step) => step.text).join(" ");
    return last.outcome?.type === "completed" ? `Answer: ${words.slice(0, 400)}` : `The answer ended: ${last.outcome?.type ?? "cut off"}.`;
  }, [state]);
}

function scrollToTarget(box, wanted, stopFollowing) {
  if (!wanted || scrollToTarget.done === wanted) return;
  const found = box.querySelector(`[data-turn="${CSS.escape(wanted.turn ?? "")}"]`);
  if (!found) return;
  scrollToTarget.done = wanted;
  stopFollowing();
  const ranges = wordsIn(found, wanted.words);
  const near = ranges[0]?.startContainer.parentElement ?? found;
  near.scrollIntoView({ block: "center" });
  found.classList.add("found");
  found.focus({ preventScroll: true });
  globalThis.CSS.highlights?.set("found", new Highlight(...ranges));
  setTimeout(() => found.classList.remove("found"), 2500);
}

/** The ranges of these words in the view. They are highlighted without changing the DOM. */
function wordsIn(element, words) {
  const ranges = [];
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && ranges.length < 100) {
    const text = texts.currentNode.data.toLowerCase();
    for (const word of words) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + word.length);
        ranges.push(range);
      }
    }
  }
  return ranges;
}
