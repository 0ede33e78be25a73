// The shelf: the list of sessions, what is unread or asks for somebody in it, and what was searched for.
import { batch, computed, signal } from "../vendor/page.js";
import { get } from "./api.js";
import { NO_LINES, withLines, withoutLine, withPage } from "./lines.js";

export const lines = signal(NO_LINES);
export const glances = signal(new Map());
export const filter = signal({});
export const loaded = signal(false);

const PAGE = 50;
let loading = null;
let looking = new Set();

/** Fetch the next page of the list, if there is one; asking twice at once asks once. */
export function more() {
  if (lines.value.next === null || loading) return loading ?? Promise.resolve();
  loading = fetchPage().finally(() => (loading = null));
  return loading;
}

async function fetchPage() {
  const first = !loaded.value;
  const page = await get("/api/sessions", { limit: PAGE, after: lines.value.next });
  // What is pinned stands at the top, however long ago anything happened there.
  const pinned = first ? (await get("/api/sessions", { pinned: "true", limit: 200 })).sessions : [];
  batch(() => {
    lines.value = withPage(withLines(lines.value, pinned), page);
    loaded.value = true;
  });
  lookAt(page.sessions.map(({ id }) => id));
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
export const places = computed(() => distinct(lines.value.order.map((line) => line.place).filter(Boolean)));
const distinct = (values) => [...new Set(values)].sort();
