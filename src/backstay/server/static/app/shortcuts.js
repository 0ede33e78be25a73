// Keyboard shortcuts for the whole web UI.
import { create, step, stop } from "./actions.js";
import { openDialog, sidebar } from "./dialog_state.js";
import { composing } from "./keyboard.js";
import { attempt } from "./notices.js";
import { passage, past, sessionState, showPresent } from "./open_session.js";

const isField = (target) => target.closest?.("input, textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  const action = actionFor(event);
  if (!action) return;
  event.preventDefault();
  action();
});

function actionFor(event) {
  if (composing(event)) return null;
  const { key, ctrlKey, metaKey, altKey, target } = event;
  if ((ctrlKey || metaKey) && key.toLowerCase() === "k") return () => (openDialog.value = openDialog.value === "search" ? null : "search");
  if (altKey && key === "ArrowDown") return () => step(1);
  if (altKey && key === "ArrowUp") return () => step(-1);
  if (altKey && key.toLowerCase() === "n") return () => attempt(create);
  if (key === "?" && !isField(target)) return () => (openDialog.value = "help");
  if (key === "Escape") return escape();
  return null;
}

/** Close the topmost layer; if there is none, stop the answer. */
function escape() {
  if (openDialog.value) return null;
  if (sidebar.value) return () => (sidebar.value = false);
  if (past.value) return () => (past.value = null);
  if (passage.value) return showPresent;
  return sessionState.value?.running ? stop : null;
}
