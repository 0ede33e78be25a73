// Keyboard input during text composition (IME).

/** Whether the key event belongs to an IME and not to the web UI. Code 229: Safari reports the Enter that selected a word
 *  only after the composition has ended. */
export const composing = (event) => event.isComposing || event.keyCode === 229;

/** A key handler for single-line fields: Enter accepts, Esc cancels. */
export const acceptOrCancel = (accept, cancel) => (event) => {
  if (composing(event)) return;
  if (event.key === "Enter") accept();
  // Esc closes only the field, not the layer below it.
  if (event.key === "Escape") (event.stopPropagation(), cancel());
};
