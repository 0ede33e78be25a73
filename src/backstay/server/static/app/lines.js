// The list of sessions: pure functions over its lines, newest first.
import { plain } from "./words.js";

export const NO_LINES = { byId: new Map(), order: [], pages: new Map() };

// The list is read page by page, for each thing that a reader chose to see: how far, and where it goes on. `next` is
// undefined before the first page and null after the last.
const UNREAD = { next: undefined, floor: Infinity };

/** How far the list was read for what the reader chose. */
export const readTo = (lines, filter) => lines.pages.get(nameOfFilter(filter)) ?? UNREAD;

/** What a server is asked for. What runs is not in an index of its own: it is looked for among what is here. */
export function queryOf({ archived, tag, place, agent }) {
  return { archived: archived ? "true" : "false", tag, place, agent };
}

const nameOfFilter = (filter) => JSON.stringify(Object.values(queryOf(filter)).map((value) => value ?? null));

const newer = (one, other) => other.active_at - one.active_at || (one.id < other.id ? 1 : -1);

/** The list with these lines in it, each as it is now. */
export function withLines(lines, found) {
  const byId = new Map(lines.byId);
  for (const line of found) byId.set(line.id, line);
  return { ...lines, byId, order: [...byId.values()].sort(newer) };
}

/** The list with a further page of what the reader chose. */
export function withPage(lines, filter, page) {
  const floor = page.next ? page.sessions.at(-1).active_at : -Infinity;
  const pages = new Map(lines.pages).set(nameOfFilter(filter), { next: page.next, floor });
  return { ...withLines(lines, page.sessions), pages };
}

/** The list without a session. */
export function withoutLine(lines, id) {
  const byId = new Map(lines.byId);
  byId.delete(id);
  return { ...lines, byId, order: lines.order.filter((line) => line.id !== id) };
}

/** Whether a line passes what the reader chose to see. */
export function passes(line, { archived, tag, place, agent, state }) {
  return (
    line.archived === Boolean(archived) &&
    (!tag || line.tags.includes(tag)) &&
    (!place || placeOf(line) === place) &&
    (!agent || line.agent === agent) &&
    (!state || (state === "running" ? Boolean(line.running) : line.state === state))
  );
}

/** Where a session comes from: a platform or a workspace; nothing if from here. */
export const placeOf = (line) => (line.family && line.place ? line.place : null);

/** The list as rows: what is pinned, then a heading for each span of days. */
export function rowsOf(lines, filter, now) {
  // What is known from elsewhere and lies below the pages that were read comes when they reach it.
  const { floor } = readTo(lines, filter);
  const shown = lines.order.filter((line) => passes(line, filter) && (line.pinned || line.active_at >= floor));
  const rows = [];
  let heading = null;
  for (const line of [...shown.filter((one) => one.pinned), ...shown.filter((one) => !one.pinned)]) {
    const group = line.pinned ? "Pinned" : spanOf(line.active_at, now);
    if (group !== heading) rows.push({ heading: (heading = group) });
    rows.push({ line });
  }
  return rows;
}

const DAY = 86_400_000;
const MONTH = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });

function spanOf(at, now) {
  const today = new Date(now).setHours(0, 0, 0, 0);
  if (at >= today) return "Today";
  if (at >= today - DAY) return "Yesterday";
  if (at >= today - 7 * DAY) return "Last 7 days";
  if (at >= today - 30 * DAY) return "Last 30 days";
  return MONTH.format(at);
}

/** What a session is called in a list. */
export const nameOf = (line) => line?.title || plain(line?.preview ?? "") || "New session";
