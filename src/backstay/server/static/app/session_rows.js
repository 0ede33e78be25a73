// The session list: pure functions over its rows, newest first.
import { named, plain } from "./format.js";

export const EMPTY_LIST = { byId: new Map(), order: [], pages: new Map() };

// The list is read page by page for each filter: the position reached, and the cursor of the next page. `next` is
// undefined before the first page and null after the last.
const UNREAD = { next: undefined, floor: Infinity };

/** The position reached for this filter. */
export const readTo = (list, filter) => list.pages.get(nameOfFilter(filter)) ?? UNREAD;

/** The query for the server. It has no index of running sessions, so that filter applies only to loaded rows. */
export function queryOf({ archived, tag, place, agent }) {
  return { archived: archived ? "true" : "false", tag, place, agent };
}

const nameOfFilter = (filter) => JSON.stringify(Object.values(queryOf(filter)).map((value) => value ?? null));

const newer = (one, other) => other.active_at - one.active_at || (one.id < other.id ? 1 : -1);

/** Add or replace rows. */
export function withSessions(list, found) {
  const byId = new Map(list.byId);
  for (const session of found) byId.set(session.id, session);
  return { ...list, byId, order: [...byId.values()].sort(newer) };
}

/** Add a page that was read for this filter. */
export function withPage(list, filter, page) {
  const floor = page.next ? page.sessions.at(-1).active_at : -Infinity;
  const pages = new Map(list.pages).set(nameOfFilter(filter), { next: page.next, floor });
  return { ...withSessions(list, page.sessions), pages };
}

/** Remove a session. */
export function withoutSession(list, id) {
  const byId = new Map(list.byId);
  byId.delete(id);
  return { ...list, byId, order: list.order.filter((session) => session.id !== id) };
}

/** Whether a row matches the filter. */
export function passes(session, { archived, tag, place, agent, state }) {
  return (
    session.archived === Boolean(archived) &&
    (!tag || session.tags.includes(tag)) &&
    (!place || placeOf(session) === place) &&
    (!agent || session.agent === agent) &&
    (!state || (state === "running" ? Boolean(session.running) : session.state === state))
  );
}

/** The origin of a session: a platform or a workspace; null for sessions of the web UI. */
export const placeOf = (session) => (session.family && session.place ? session.place : null);

/** The rows to show: pinned sessions, then a heading for each period. */
export function rowsOf(list, filter, now) {
  // Sessions older than the pages read so far, received from elsewhere, are hidden until the pages reach them.
  const { floor } = readTo(list, filter);
  const shown = list.order.filter((session) => passes(session, filter) && (session.pinned || session.active_at >= floor));
  const rows = [];
  let heading = null;
  for (const session of [...shown.filter((one) => one.pinned), ...shown.filter((one) => !one.pinned)]) {
    const group = session.pinned ? "Pinned" : spanOf(session.active_at, now);
    if (group !== heading) rows.push({ heading: (heading = group) });
    rows.push({ session });
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

/** The name of a session in the list. */
export const nameOf = (session) => named(session?.title || plain(session?.preview ?? "") || "New session");
