// Notices: short sentences that come, are read aloud politely, and go.
import { signal } from "../vendor/page.js";
import { Refused } from "./api.js";
import { sentence } from "./words.js";

export const notices = signal([]);
let count = 0;

/** Say something; a refusal is said with its hint. */
export function tell(what, kind = "plain") {
  // That nobody knows us here is said by a banner.
  if (what instanceof Refused && what.status === 401) return;
  const error = what instanceof Error;
  const text = error ? sentence(spoken(what.message)) : what;
  const hint = what instanceof Refused ? what.hint : "";
  const notice = { id: (count += 1), text, hint, kind: error ? "error" : kind };
  notices.value = [...notices.value.slice(-2), notice];
  setTimeout(() => dismiss(notice.id), error ? 9000 : 4000);
}

/** What a server says of the session that is open, without the ids that nobody here knows it by. */
const spoken = (text) => text.replace(/^ses_[0-9a-z]{26}\b/, "this session").replace(/\btrn_[0-9a-z]{26}\b/g, "a turn");

export function dismiss(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Do something; if it is refused, say so. Whether it worked. */
export async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    tell(error);
    return false;
  }
}
