// Notices: short messages that appear, are announced to screen readers, and disappear.
import { signal } from "../vendor/page.js";
import { Refused } from "./api.js";
import { sentence } from "./format.js";

export const notices = signal([]);
let count = 0;

/** Show a notice; an error response is shown with its hint. */
export function showNotice(what, kind = "plain") {
  // A banner already shows that the browser is signed out.
  if (what instanceof Refused && what.status === 401) return;
  const error = what instanceof Error;
  const text = error ? sentence(withoutIds(what.message)) : what;
  const hint = what instanceof Refused ? what.hint : "";
  const notice = { id: (count += 1), text, hint, kind: error ? "error" : kind };
  notices.value = [...notices.value.slice(-2), notice];
  setTimeout(() => dismiss(notice.id), error ? 9000 : 4000);
}

/** Replace ids in an error text, which mean nothing to the reader. */
const withoutIds = (text) => text.replace(/^ses_[0-9a-z]{26}\b/, "this session").replace(/\btrn_[0-9a-z]{26}\b/g, "a turn");

export function dismiss(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Run an action and show its error, if any. Returns success. */
export async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    showNotice(error);
    return false;
  }
}
