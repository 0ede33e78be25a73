// The route: the part of the address after #. `#ses_…` is a session, `#ses_…/lineage` its lineage.
import { signal } from "../vendor/page.js";

export const route = signal(read());

function read() {
  const [session, view, message] = location.hash.slice(1).split("/");
  return { session: /^ses_[0-9a-z]{26}$/.test(session) ? session : null, view: view || null, message: message ?? null };
}

/** Open a session, or none. */
export function go(session, view = "", message = "") {
  const hash = [session ?? "", view, message].join("/").replace(/\/+$/, "");
  if (location.hash.slice(1) !== hash) location.hash = hash;
  else route.value = read();
}

addEventListener("hashchange", () => (route.value = read()));
