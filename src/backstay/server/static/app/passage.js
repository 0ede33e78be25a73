// A passage: a segment of a session that is shown apart from its end until both meet. Pure functions over positions.
// The messages of a session run through its windows: first those of an older window, up to the position that the
// summary covers, then the next window from its summary on.
import { append, open, prepend } from "./reduce.js";

/** The windows in reading order, oldest first, each with the position up to which it is read. */
export function chainOf(windows, current) {
  const byId = new Map(windows.map((window) => [window.id, window]));
  const chain = [];
  let until = Infinity;
  for (let here = byId.get(current); here; here = byId.get(here.summarises)) {
    chain.unshift({ window: here.id, until });
    until = here.summarises_until ?? 0;
  }
  return chain;
}

/** A passage that consists of one snapshot, without the messages that are part of the session's end. */
export function begin(snapshot, top) {
  const known = snapshot.messages.filter(({ position }) => snapshot.window !== top.window || position < top.position);
  const state = open({ ...snapshot, messages: known, output: [], pending_steering: [], waiting: [], turns: ended(snapshot) });
  return { state, bottom: { window: snapshot.window, position: (known.at(-1)?.position ?? top.position - 1) + 1 } };
}

/** The passage with an earlier snapshot before it. */
export const above = (passage, snapshot) => ({ ...passage, state: prepend(passage.state, snapshot) });

/** The next query below a passage; null if it has met the session's end, or its window is no longer read. */
export function next({ bottom }, top, chain, page) {
  const place = inNextWindow(chain, bottom);
  if (!place || meets({ bottom }, top, chain)) return null;
  const { until } = chain.find(({ window }) => window === place.window);
  const end = place.window === top.window ? Math.min(until, top.position) : until;
  const before = Math.min(place.position + page, end);
  return { window: place.window, before, last: before - place.position };
}

/** The passage with the snapshot of that query after it. */
export function below(passage, snapshot, { window, before }) {
  return { state: append(passage.state, { ...snapshot, turns: ended(snapshot) }), bottom: { window, position: before } };
}

/** Whether a passage reaches the beginning of the session's end. */
export function meets({ bottom }, top, chain) {
  const [here, there] = [inNextWindow(chain, bottom), inNextWindow(chain, top)];
  return Boolean(here && there) && here.window === there.window && here.position >= there.position;
}

/** The same position in the window in which reading continues; null if its window is no longer read. */
function inNextWindow(chain, { window, position }) {
  const at = chain.findIndex((one) => one.window === window);
  if (at < 0) return null;
  const younger = chain[at + 1];
  return younger && position >= chain[at].until ? { window: younger.window, position: 0 } : { window, position };
}

const ended = (snapshot) => snapshot.turns.filter(({ state }) => state === "ended");
