// Typing: what keys mean while letters are still being chosen.

/** Whether a key belongs to whoever composes letters, and not to the page. 229: Safari tells of the Enter that chose a
 *  word only after the word was chosen. */
export const composing = (event) => event.isComposing || event.keyCode === 229;

/** What Enter and Esc do in a field of one line. */
export const enterOr = (keep, leave) => (event) => {
  if (composing(event)) return;
  if (event.key === "Enter") keep();
  // Esc closes the field, and nothing that lies below it.
  if (event.key === "Escape") (event.stopPropagation(), leave());
};
