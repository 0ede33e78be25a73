// A passage: a stretch of a session that is read apart from its end, until both meet. Pure functions over places in it.
// What a session reads goes through its windows: the first messages of an older one, as far as a summary stands for them,
// and then the younger one from its summary on.
import { append, open, prepend } from "./reduce.js";

/** The windows that are read one after the other, the oldest first; each as far as it is read. */
export function chainOf(windows, current) {
  const byId = new Map(windows.map((window) => [window.id, window]));
  const chain = [];
  let until = Infinity;
  for (let here = byId.get(current); here; here = byId.get(here.behind)) {
    chain.unshift({ window: here.id, until });
    until = here.behind_until ?? 0;
  }
  return chain;
}

/** A passage that begins and ends with a chapter; where the end of the session begins, it ends. */
export function begin(chapter, top) {
  const known = chapter.messages.filter(({ position }) => chapter.window !== top.window || position < top.position);
  const story = open({ ...chapter, messages: known, said: [], unheard: [], waiting: [], turns: ended(chapter) });
  return { story, bottom: { window: chapter.window, position: (known.at(-1)?.position ?? top.position - 1) + 1 } };
}

/** The passage with an earlier chapter before it. */
export const above = (passage, chapter) => ({ ...passage, story: prepend(passage.story, chapter) });

/** What is to be read next below a passage: nothing, if it has met the end of the session or is no part of it any more. */
export function next({ bottom }, top, chain, page) {
  const place = onward(chain, bottom);
  if (!place || meets({ bottom }, top, chain)) return null;
  const { until } = chain.find(({ window }) => window === place.window);
  const end = place.window === top.window ? Math.min(until, top.position) : until;
  const before = Math.min(place.position + page, end);
  return { window: place.window, before, last: before - place.position };
}

/** The passage with the chapter that was asked for after it. */
export function below(passage, chapter, { window, before }) {
  return { story: append(passage.story, { ...chapter, turns: ended(chapter) }), bottom: { window, position: before } };
}

/** Whether a passage goes as far as the end of the session begins. */
export function meets({ bottom }, top, chain) {
  const [here, there] = [onward(chain, bottom), onward(chain, top)];
  return Boolean(here && there) && here.window === there.window && here.position >= there.position;
}

/** The same place, in the window in which it is read on; none if it is not read any more. */
function onward(chain, { window, position }) {
  const at = chain.findIndex((one) => one.window === window);
  if (at < 0) return null;
  const younger = chain[at + 1];
  return younger && position >= chain[at].until ? { window: younger.window, position: 0 } : { window, position };
}

const ended = (chapter) => chapter.turns.filter(({ state }) => state === "ended");
