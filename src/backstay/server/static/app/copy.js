// Copying: words for the clipboard, and the truth about whether they got there.
import { useState } from "./html.js";
import { tell } from "./notices.js";

/** Whether these words were copied just now, and a way to copy them. */
export function useCopy(text) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await copied(text))) return tell("This browser did not let the page copy it.", "error");
    setDone(true);
    return setTimeout(() => setDone(false), 1500);
  };
  return [done, copy];
}

/** Put words on the clipboard; whether that worked. A page that came over plain HTTP has only the old way. */
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
