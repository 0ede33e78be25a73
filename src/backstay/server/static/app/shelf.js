// The shelf: the list of sessions, what is unread or asks for somebody in it, and what was searched for.
import { computed, signal } from "../vendor/page.js";
import { get } from "./api.js";
import { NO_LINES, placeOf, queryOf, readTo, withLines, withoutLine, withPage } from "./lines.js";
import { about } from "./server.js";

export const lines = signal(NO_LINES);
export const glances = signal(new Map());
export const filter = signal({});
/** Whether the list of what the reader chose is here, as far as it was read. */
export const loaded = computed(() => readTo(lines.value, filter.value).next !== undefined);

/** The time, as exactly as a list tells it. */
export const minute = signal(Date.now());
setInterval(() => (minute.value = Date.now()), 60_000);

const PAGE = 50;
let loading = null;
let looking = new Set();

/** Fetch the next page of what the reader chose, if there is one; asking twice at once asks once. */
export async function more() {
  const chosen = filter.value;
  if (loading) return loading.chosen === chosen ? loading.page : loading.page.catch(() => {}).then(more);
  if (readTo(lines.value, chosen).next === null) return undefined;
  loading = { chosen, page: fetchPage(chosen).finally(() => (loading = null)) };
  return loading.page;
}

async function fetchPage(chosen) {
  const { next } = readTo(lines.value, chosen);
  const page = await get("/api/sessions", { ...queryOf(chosen), limit: PAGE, after: next });
  // What is pinned stands at the top, however long ago anything happened there.
  const pinned = next ? [] : (await get("/api/sessions", { ...queryOf(chosen), pinned: "true", limit: 200 })).sessions;
  lines.value = withPage(withLines(lines.value, pinned), chosen, page);
  lookAt([...pinned, ...page.sessions].map(({ id }) => id));
}

/** What the stream tells of the list. */
export function hearLine(kind, data) {
  if (kind === "unlisted") lines.value = withoutLine(lines.value, data.id);
  else {
    const found = kind === "listed" ? [data] : data.feed.sessions;
    lines.value = withLines(lines.value, found);
    lookAt(found.map(({ id }) => id));
  }
}

/** Learn what lines do not tell, for all that are asked about within a moment. */
export function lookAt(ids) {
  if (!ids.length) return;
  if (!looking.size) setTimeout(look, 60);
  for (const id of ids) looking.add(id);
}

async function look() {
  const ids = [...looking];
  looking = new Set();
  for (let start = 0; start < ids.length; start += 200) {
    const told = await get("/api/glances", { sessions: ids.slice(start, start + 200).join(",") }).catch(() => null);
    if (told) setGlances(told.glances);
  }
}

function setGlances(found) {
  const next = new Map(glances.value);
  for (const { session, marks, asks, outcome } of found) {
    const read = Math.max(marks.read_to, next.get(session)?.read ?? 0);
    next.set(session, { read, draft: marks.draft, asks, outcome });
  }
  glances.value = next;
}

/** The reader has seen a session up to an event. */
export function noteRead(id, number) {
  const glance = glances.value.get(id) ?? { read: 0, draft: "", asks: false, outcome: null };
  if (glance.read < number) glances.value = new Map(glances.value).set(id, { ...glance, read: number });
}

/** What a line is marked with: asks, running, troubled, unread, or nothing. */
export function markOf(line, glance, open) {
  if (glance?.asks) return "asks";
  if (line.running) return "running";
  if (glance && !open && glance.read < line.last_event) {
    return glance.outcome === "failed" || glance.outcome === "interrupted" ? "troubled" : "unread";
  }
  return null;
}

export const tags = computed(() => distinct(lines.value.order.flatMap((line) => line.tags)));
export const places = computed(() => distinct(lines.value.order.map(placeOf).filter(Boolean)));
export const agents = computed(() => distinct([...served(), ...lines.value.order.map((line) => line.agent).filter(Boolean)]));
const served = () => about.value?.facts.agents ?? [];
const distinct = (values) => [...new Set(values)].sort();
