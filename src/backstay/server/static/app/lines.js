// The list of sessions: pure functions over its lines, newest first.

export const NO_LINES = { byId: new Map(), order: [], next: undefined };

const newer = (one, other) => other.active_at - one.active_at || (one.id < other.id ? 1 : -1);

/** The list with these lines in it, each as it is now. */
export function withLines(lines, found) {
  const byId = new Map(lines.byId);
  for (const line of found) byId.set(line.id, line);
  return { ...lines, byId, order: [...byId.values()].sort(newer) };
}

/** The list with a further page at its end. */
export const withPage = (lines, page) => ({ ...withLines(lines, page.sessions), next: page.next });

/** The list without a session. */
export function withoutLine(lines, id) {
  const byId = new Map(lines.byId);
  byId.delete(id);
  return { ...lines, byId, order: lines.order.filter((line) => line.id !== id) };
}

/** Whether a line passes what the reader chose to see. */
export function passes(line, { archived, tag, place, state }) {
  return (
    line.archived === Boolean(archived) &&
    (!tag || line.tags.includes(tag)) &&
    (!place || placeOf(line) === place) &&
    (!state || (state === "running" ? Boolean(line.running) : line.state === state))
  );
}

/** Where a session comes from: a platform or a workspace; nothing if from here. */
export const placeOf = (line) => (line.family && line.place ? line.place : null);

/** The list as rows: what is pinned, then a heading for each span of days. */
export function rowsOf(lines, filter, now) {
  const shown = lines.order.filter((line) => passes(line, filter));
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
export const nameOf = (line) => line?.title || line?.preview || "New session";
