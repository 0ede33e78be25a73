// Keys that work everywhere on the page.
import { create, step, stop } from "./actions.js";
import { attempt } from "./notices.js";
import { passage, past, story, toNow } from "./room.js";
import { sheet, sidebar } from "./sheet.js";
import { composing } from "./typing.js";

const writing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  const act = actOf(event);
  if (!act) return;
  event.preventDefault();
  act();
});

function actOf(event) {
  if (composing(event)) return null;
  const { key, ctrlKey, metaKey, altKey, target } = event;
  if ((ctrlKey || metaKey) && key.toLowerCase() === "k") return () => (sheet.value = sheet.value === "search" ? null : "search");
  if (altKey && key === "ArrowDown") return () => step(1);
  if (altKey && key === "ArrowUp") return () => step(-1);
  if (altKey && key.toLowerCase() === "n") return () => attempt(create);
  if (key === "?" && !writing(target)) return () => (sheet.value = "help");
  if (key === "Escape") return escape();
  return null;
}

/** Close what lies on top; if nothing does, stop the answer. */
function escape() {
  if (sheet.value) return null;
  if (sidebar.value) return () => (sidebar.value = false);
  if (past.value) return () => (past.value = null);
  if (passage.value) return toNow;
  return story.value?.running ? stop : null;
}
