// The state of one session in the web UI. It changes only by `reduce(state, event)`, which is pure: the same events
// give the same state, live or replayed, in any tab. `open(snapshot)` gives the state at one event from a snapshot.

export const COMPACTOR = "backstay.compactor";

/** The state of a snapshot: that after the last event of its session. */
export function open(snapshot) {
  const { session } = snapshot;
  const running = snapshot.turns.find((turn) => turn.state === "running");
  return {
    session: session.id,
    number: session.last_event,
    window: snapshot.window,
    top: topOf(snapshot),
    entries: entriesOf(snapshot),
    waiting: snapshot.waiting.map(({ id, agent, input, steer, held }) => ({ id, agent, parts: input ?? [], steer, held })),
    running: running?.id ?? null,
    cancelling: running?.cancel_requested ?? false,
    closed: session.state === "open" ? null : session.state,
    stale: false,
  };
}

/** The state with an earlier snapshot before it. */
export function prepend(state, snapshot) {
  return { ...state, top: topOf(snapshot), entries: joined(entriesOf(alone(snapshot)), state.entries) };
}

/** The state with a later snapshot after it, without its running turn. */
export const append = (state, snapshot) => ({ ...state, entries: joined(state.entries, entriesOf(alone(snapshot))) });

/** The state with the entries of an earlier state before it. */
export const join = (earlier, state) => ({ ...state, top: earlier.top, entries: joined(earlier.entries, state.entries) });

const alone = (snapshot) => ({ ...snapshot, output: [], pending_steering: [], turns: snapshot.turns.filter(({ state }) => state === "ended") });

/** The state after one more event. A repeated event changes nothing; a gap makes the state stale. */
export function reduce(state, event) {
  if (state.stale || event.last <= state.number) return state;
  if (event.number > state.number + 1) return stale(state);
  const step = STEPS[event.body.kind];
  const next = step ? step(state, event, event.body) : state;
  return { ...next, number: event.last };
}

// After a change of window, a fold or a loss, the events do not give the current messages: a new snapshot is needed.
const stale = (state) => ({ ...state, stale: true });

const STEPS = {
  window_opened: (state, _, body) => (body.reason === "first" ? { ...state, window: body.window } : stale(state)),
  turn_folded: stale,
  tail_lost: stale,

  turn_submitted: (state, event, { agent, parts, steer = false }) => {
    const place = steer ? state.waiting.filter((turn) => turn.steer).length : state.waiting.length;
    return { ...state, waiting: state.waiting.toSpliced(place, 0, { id: event.turn, agent, parts, steer, held: false }) };
  },
  turn_edited: (state, event, { parts }) => ({
    ...state,
    waiting: state.waiting.map((turn) => (turn.id === event.turn ? { ...turn, parts } : turn)),
  }),
  turn_held: (state, event) => setHeld(state, event.turn, true),
  turn_released: (state, event) => setHeld(state, event.turn, false),
  turns_reordered: (state, _, { turns }) => ({
    ...state,
    waiting: state.waiting.toSorted((one, other) => turns.indexOf(one.id) - turns.indexOf(other.id)),
  }),

  turn_started: (state, event, { agent, message }) => {
    const known = message && state.entries.some((entry) => entry.input?.id === message.id);
    const entry = {
      ...newEntry(event.turn, agent),
      input: message && !known ? inputOf(message) : null,
      startedAt: event.at,
    };
    const begun = { ...state, running: event.turn, cancelling: false, waiting: without(state.waiting, event.turn) };
    return agent === COMPACTOR ? begun : { ...begun, entries: [...state.entries, entry] };
  },
  text_delta: (state, event, { text }) => changeTurn(state, event, (entry) => withText(entry, "text", text)),
  thought_delta: (state, event, { text }) => changeTurn(state, event, (entry) => withText(entry, "thought", text)),
  tool_called: (state, event, { call, key }) =>
    changeTurn(markRepeated(state, key), event, (entry) => withStep(entry, callOf(call, { key, at: event.at }))),
  tool_returned: (state, event, { result }) =>
    changeTurn(state, event, (entry) => changeCall(returned(entry, result), result.id, { endedAt: event.at })),
  custom_reported: (state, event, { name, data }) =>
    changeTurn(state, event, (entry) => withStep(entry, { type: "custom", kind: name, data: data ?? null })),
  usage_reported: (state, event, { usage }) =>
    changeTurn(state, event, (entry) => (used(usage) ? { ...entry, usage: sum(entry.usage, usage) } : entry)),
  steering_taken: (state, event, { steer, parts }) =>
    changeTurn({ ...state, waiting: without(state.waiting, steer) }, event, (entry) => withSteering(entry, parts)),
  approval_decided: (state, event, { call, approved, run_again = false }) =>
    changeTurn(state, event, (entry) => {
      if (run_again) return changeCall(entry, call, { allowedAgain: true });
      const startedAt = approved && entry.state === "running" ? event.at : null;
      return changeCall(entry, call, { approval: approved ? "approved" : "denied", startedAt });
    }),
  cancel_requested: (state, event) => (event.turn === state.running ? { ...state, cancelling: true } : state),

  turn_ended: (state, event, { outcome, may_have_run = [] }) => {
    const freed = { ...state, waiting: without(state.waiting, event.turn) };
    if (event.turn !== state.running) return freed;
    const ended = { ...freed, running: null, cancelling: false };
    return changeTurn(ended, event, (entry) => {
      const settled = { ...insertSteering(entry), state: "ended", outcome: outcomeOf(outcome), endedAt: event.at };
      return may_have_run.reduce((sofar, call) => changeCall(sofar, call, { unknown: true }), settled);
    });
  },
  turn_recorded: (state, event, { messages = [] }) => ({
    ...state,
    waiting: without(state.waiting, event.turn),
    entries: [...state.entries, ...entriesOf({ messages, turns: [], calls: [], output: [] })],
  }),

  session_ended: (state) => ({ ...state, closed: "ended" }),
  session_expired: (state) => ({ ...state, closed: "expired" }),
  session_deleted: (state) => ({ ...state, closed: "deleted" }),
};

// --- entries: the turns of the conversation --------------------------------------------------------------------------

function newEntry(turn, agent) {
  return {
    turn,
    agent,
    input: null,
    steps: [],
    pendingSteering: [],
    usage: null,
    state: "running",
    outcome: null,
    startedAt: null,
    endedAt: null,
    summary: null,
    cut: false,
  };
}

function entriesOf({ messages, turns, calls, output, pending_steering = [] }) {
  const known = new Map(turns.map((turn) => [turn.id, turn]));
  const entries = [];
  for (const message of messages) {
    const previous = entries.at(-1);
    const together = previous && message.turn && previous.turn === message.turn && message.role !== "summary";
    const entry = together ? previous : entryFor(message, known.get(message.turn));
    entries[together ? entries.length - 1 : entries.length] = withMessage(entry, message, together);
  }
  const running = turns.find((turn) => turn.state === "running");
  if (running && running.agent !== COMPACTOR) {
    const place = entries.findIndex((entry) => entry.turn === running.id);
    const begun = place < 0 ? entryFor({ turn: running.id }, running) : entries[place];
    const now = output.reduce((entry, message) => withMessage(entry, message, true), begun);
    entries[place < 0 ? entries.length : place] = { ...now, pendingSteering: pending_steering };
  }
  return entries.map((entry) => withCalls(entry, calls));
}

/** The entry for the turn of a message; almost empty if no agent ran it, or if it was deleted with its session. */
function entryFor({ turn: id }, turn) {
  if (!turn?.agent) return { ...newEntry(id, null), state: "ended" };
  return {
    ...newEntry(id, turn.agent),
    state: turn.state,
    outcome: turn.outcome ? outcomeOf(turn.outcome) : null,
    usage: used(turn.usage) ? sum(null, turn.usage) : null,
    startedAt: turn.started_at,
    endedAt: turn.ended_at,
  };
}

/** Add a message to an entry. The first user message of a turn is its input; later ones are steering. */
function withMessage(entry, message, together) {
  const placed = message.partial && !entry.outcome ? { ...entry, cut: entry.state === "ended" } : entry;
  if (message.role === "summary") return { ...placed, summary: textOf(message.parts) };
  if (message.role === "user" && !together) return { ...placed, input: inputOf(message) };
  if (message.role === "user") return withStep(placed, { type: "steering", parts: message.parts });
  return message.parts.reduce((sofar, part) => withPart(sofar, part), placed);
}

function withPart(entry, part) {
  if (part.type === "text" || part.type === "thought") return withText(entry, part.type, part.text);
  if (part.type === "tool_call") return withStep(entry, callOf(part));
  if (part.type === "tool_result") return returned(entry, part);
  return withStep(entry, { data: null, ...part });
}

/** Concatenate two lists of entries; a turn that a page boundary split becomes one entry again. */
function joined(before, after) {
  const [last, first] = [before.at(-1), after[0]];
  if (!last?.turn || last.turn !== first?.turn) return [...before, ...after];
  // A user message at the top of a page, within a turn that began before the page, is steering.
  const steering = first.input ? [{ type: "steering", parts: first.input.parts }] : [];
  const whole = { ...first, input: last.input, steps: [...steering, ...first.steps].reduce(added, last.steps) };
  return [...before.slice(0, -1), whole, ...after.slice(1)];
}

// --- steps: the events within a turn ---------------------------------------------------------------------------------

const withStep = (entry, step) => ({ ...entry, steps: added(entry.steps, step) });

/** Append a step. Consecutive texts, or thoughts, are merged; a result is stored in its call. */
function added(steps, step) {
  const last = steps.at(-1);
  const merges = last && last.type === step.type && (step.type === "text" || step.type === "thought");
  if (merges) return [...steps.slice(0, -1), { ...last, text: last.text + step.text }];
  if (step.type === "result" && steps.some((one) => one.type === "call" && one.id === step.id)) {
    return steps.map((one) => (one.type === "call" && one.id === step.id ? { ...one, result: step.result } : one));
  }
  return [...steps, step];
}

const withText = (entry, type, text) => withStep(entry, { type, text });

/** A new call. Its tool starts at once, unless a person must approve it first or the client runs it. */
function callOf({ id, name, arguments: asked = {}, approval = false, client = false }, { key = null, at = null } = {}) {
  return {
    type: "call",
    id,
    key,
    name,
    arguments: asked,
    client,
    approval: approval ? "asked" : "none",
    unknown: false,
    again: false,
    allowedAgain: false,
    result: null,
    startedAt: approval || client ? null : at,
    endedAt: null,
  };
}

function returned(entry, { id, output = null, error = false, files = [] }) {
  const result = files.length ? { output, error, files } : { output, error };
  return insertSteeringIfPossible(withStep(entry, { type: "result", id, result }));
}

function changeCall(entry, id, change) {
  return { ...entry, steps: entry.steps.map((step) => (step.type === "call" && step.id === id ? { ...step, ...change } : step)) };
}

/** Add the ledger entries of the calls. A call that was repeated later has none: the ledger has only the last one. */
function withCalls(entry, calls) {
  const records = new Map(calls.filter(({ turn }) => turn === entry.turn).map((record) => [record.call, record]));
  return { ...entry, steps: entry.steps.map((step) => (step.type === "call" ? withRecord(entry, step, records.get(step.id)) : step)) };
}

function withRecord(entry, step, record) {
  if (!record) return entry.agent && !step.result ? { ...step, ...REPEATED } : step;
  return {
    ...step,
    key: `${record.root}.${record.ordinal}`,
    approval: record.approval,
    unknown: record.effect === "unknown" && !step.client,
    allowedAgain: record.run_again !== "none",
    startedAt: record.started_at ?? null,
    endedAt: record.ended_at ?? null,
  };
}

const REPEATED = { key: null, approval: "none", unknown: false, again: true, allowedAgain: false, startedAt: null, endedAt: null };

/** Mark an earlier call with this key as repeated by the one that starts now. */
function markRepeated(state, key) {
  const same = (step) => step.type === "call" && step.key === key;
  if (!state.entries.some((entry) => entry.steps.some(same))) return state;
  const marked = (step) => (same(step) ? { ...step, ...REPEATED } : step);
  return { ...state, entries: state.entries.map((entry) => (entry.steps.some(same) ? { ...entry, steps: entry.steps.map(marked) } : entry)) };
}

/** Insert steering as the store does: never between a call and its result. */
const withSteering = (entry, parts) => insertSteeringIfPossible({ ...entry, pendingSteering: [...entry.pendingSteering, parts] });

function insertSteeringIfPossible(entry) {
  const open = entry.steps.some((step) => step.type === "call" && !step.result);
  return open ? entry : insertSteering(entry);
}

function insertSteering(entry) {
  const steering = entry.pendingSteering.map((parts) => ({ type: "steering", parts }));
  return steering.length ? { ...entry, pendingSteering: [], steps: [...entry.steps, ...steering] } : entry;
}

// --- helpers ---------------------------------------------------------------------------------------------------------

const inputOf = ({ id, parts, at, role }) => ({ id, parts, at, role });
const outcomeOf = ({ type, reason = "", code = type === "failed" ? "agent_failed" : "", hint = "" }) => ({ type, reason, code, hint });
const setHeld = (state, id, held) => ({
  ...state,
  waiting: state.waiting.map((turn) => (turn.id === id ? { ...turn, held } : turn)),
});
const without = (waiting, id) => (waiting.some((turn) => turn.id === id) ? waiting.filter((turn) => turn.id !== id) : waiting);
const used = ({ type, ...counts }) => Object.values(counts).some(Boolean);
const topOf = ({ window, summarises, summarises_until, messages }) => ({
  window,
  position: messages[0]?.position ?? 0,
  summarises: summarises ?? null,
  summarisesUntil: summarises_until ?? null,
});

/** The text of these parts. */
export const textOf = (parts) => parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");

/** The parts other than text. */
export const partsBesidesText = (parts) => parts.filter((part) => part.type !== "text");

/** The same parts with another text; attachments stay. */
export const replaceText = (parts, text) => [{ type: "text", text }, ...partsBesidesText(parts)];

function changeTurn(state, event, change) {
  const place = state.entries.findLastIndex((entry) => entry.turn === event.turn);
  return place < 0 ? state : { ...state, entries: state.entries.with(place, change(state.entries[place])) };
}

function sum(usage, { input_tokens = 0, output_tokens = 0, cached_tokens = 0, cost = 0, model = null }) {
  return {
    input: (usage?.input ?? 0) + input_tokens,
    output: (usage?.output ?? 0) + output_tokens,
    cached: (usage?.cached ?? 0) + cached_tokens,
    cost: (usage?.cost ?? 0) + cost,
    model,
  };
}
