// Copying to the clipboard, with feedback on whether it worked.
import { useState } from "./html.js";
import { showNotice } from "./notices.js";

/** Whether the text was just copied, and a function that copies it. */
export function useCopy(text) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await copied(text))) return showNotice("The browser did not allow copying.", "error");
    setDone(true);
    return setTimeout(() => setDone(false), 1500);
  };
  return [done, copy];
}

/** Copy text to the clipboard; returns success. Pages loaded over plain HTTP must use execCommand. */
async function copied(text) {
  if (!navigator.clipboard) return copiedByHand(text);
  return navigator.clipboard.writeText(text).then(() => true, () => copiedByHand(text));
}

function copiedByHand(text) {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.className = "unseen";
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus({ preventScroll: true });
  return done;
}
