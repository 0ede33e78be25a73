// The session list: its rows, the badges beside them, and the filter.
import { computed, signal } from "../vendor/page.js";
import { get } from "./api.js";
import { about } from "./server.js";
import { EMPTY_LIST, placeOf, queryOf, readTo, withoutSession, withPage, withSessions } from "./session_rows.js";

export const sessionList = signal(EMPTY_LIST);
export const badges = signal(new Map());
export const filter = signal({});
/** Whether the first page for the current filter is loaded. */
export const loaded = computed(() => readTo(sessionList.value, filter.value).next !== undefined);

/** The current time, updated every minute, for the times in the list. */
export const minute = signal(Date.now());
setInterval(() => (minute.value = Date.now()), 60_000);

const PAGE = 50;
let loading = null;
let requested = new Set();

/** Load the next page for the current filter, if there is one; concurrent calls share one request. */
export async function loadMore() {
  const chosen = filter.value;
  if (loading) return loading.chosen === chosen ? loading.page : loading.page.catch(() => {}).then(loadMore);
  if (readTo(sessionList.value, chosen).next === null) return undefined;
  loading = { chosen, page: fetchPage(chosen).finally(() => (loading = null)) };
  return loading.page;
}

async function fetchPage(chosen) {
  const { next } = readTo(sessionList.value, chosen);
  const page = await get("/api/sessions", { ...queryOf(chosen), limit: PAGE, after: next });
  // Pinned sessions are shown at the top, however old they are.
  const pinned = next ? [] : (await get("/api/sessions", { ...queryOf(chosen), pinned: "true", limit: 200 })).sessions;
  sessionList.value = withPage(withSessions(sessionList.value, pinned), chosen, page);
  requestBadges([...pinned, ...page.sessions].map(({ id }) => id));
}

/** Apply a frame of the event stream to the list. */
export function applyListFrame(kind, data) {
  if (kind === "unlisted") sessionList.value = withoutSession(sessionList.value, data.id);
  else {
    const found = kind === "listed" ? [data] : data.feed.sessions;
    sessionList.value = withSessions(sessionList.value, found);
    requestBadges(found.map(({ id }) => id));
  }
}

/** Load the badges of these sessions; requests within 60 ms are combined. */
export function requestBadges(ids) {
  if (!ids.length) return;
  if (!requested.size) setTimeout(loadBadges, 60);
  for (const id of ids) requested.add(id);
}

async function loadBadges() {
  const ids = [...requested];
  requested = new Set();
  for (let start = 0; start < ids.length; start += 200) {
    const response = await get("/api/badges", { sessions: ids.slice(start, start + 200).join(",") }).catch(() => null);
    if (response) setBadges(response.badges);
  }
}

function setBadges(found) {
  const next = new Map(badges.value);
  for (const { session, marks, asks, outcome } of found) {
    const read = Math.max(marks.read_to, next.get(session)?.read ?? 0);
    next.set(session, { read, draft: marks.draft, asks, outcome });
  }
  badges.value = next;
}

/** Note that the reader has seen a session up to an event. */
export function noteRead(id, number) {
  const badge = badges.value.get(id) ?? { read: 0, draft: "", asks: false, outcome: null };
  if (badge.read < number) badges.value = new Map(badges.value).set(id, { ...badge, read: number });
}

/** The badge of a row: asks, running, troubled, unread, or null. */
export function markOf(session, badge, open) {
  if (badge?.asks) return "asks";
  if (session.running) return "running";
  if (badge && !open && badge.read < session.last_event) {
    return badge.outcome === "failed" || badge.outcome === "interrupted" ? "troubled" : "unread";
  }
  return null;
}

export const tags = computed(() => distinct(sessionList.value.order.flatMap((session) => session.tags)));
export const places = computed(() => distinct(sessionList.value.order.map(placeOf).filter(Boolean)));
export const agents = computed(() => distinct([...served(), ...sessionList.value.order.map((session) => session.agent).filter(Boolean)]));
const served = () => about.value?.facts.agents ?? [];
const distinct = (values) => [...new Set(values)].sort();
