// The story of one session as the page knows it. `reduce(state, event)` is pure and the only way it changes: live or
// replayed, in this tab or another, the same events make the same state. `open(chapter)` is that state at one event.

export const COMPACTOR = "backstay.compactor";

/** The state in which a chapter shows its session: after its last event. */
export function open(chapter) {
  const { session } = chapter;
  const running = chapter.turns.find((turn) => turn.state === "running");
  return {
    session: session.id,
    number: session.last_event,
    window: chapter.window,
    top: topOf(chapter),
    entries: entriesOf(chapter),
    waiting: chapter.waiting.map(({ id, agent, input, steer }) => ({ id, agent, parts: input ?? [], steer })),
    running: running?.id ?? null,
    cancelling: running?.cancel_requested ?? false,
    closed: session.state === "open" ? null : session.state,
    stale: false,
  };
}

/** The same state with an earlier chapter before it. */
export function prepend(state, chapter) {
  return { ...state, top: topOf(chapter), entries: joined(entriesOf(alone(chapter)), state.entries) };
}

/** The same state with a later chapter after it, of which nothing runs. */
export const append = (state, chapter) => ({ ...state, entries: joined(state.entries, entriesOf(alone(chapter))) });

/** The same state with all of an earlier one before it. */
export const join = (earlier, state) => ({ ...state, top: earlier.top, entries: joined(earlier.entries, state.entries) });

const alone = (chapter) => ({ ...chapter, said: [], unheard: [], turns: chapter.turns.filter(({ state }) => state === "ended") });

/** The state after one more event. What is told again changes nothing; what was missed is noticed. */
export function reduce(state, event) {
  if (state.stale || event.last <= state.number) return state;
  if (event.number > state.number + 1) return stale(state);
  const step = STEPS[event.body.kind];
  const next = step ? step(state, event, event.body) : state;
  return { ...next, number: event.last };
}

// Where a window changes, or words were folded or lost, events do not tell what stands there now: a chapter does.
const stale = (state) => ({ ...state, stale: true });

const STEPS = {
  window_opened: (state, _, body) => (body.reason === "first" ? { ...state, window: body.window } : stale(state)),
  turn_folded: stale,
  tail_lost: stale,

  turn_submitted: (state, event, { agent, parts, steer = false }) => {
    const place = steer ? state.waiting.filter((turn) => turn.steer).length : state.waiting.length;
    return { ...state, waiting: state.waiting.toSpliced(place, 0, { id: event.turn, agent, parts, steer }) };
  },
  turn_edited: (state, event, { parts }) => ({
    ...state,
    waiting: state.waiting.map((turn) => (turn.id === event.turn ? { ...turn, parts } : turn)),
  }),
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
  text_delta: (state, event, { text }) => inTurn(state, event, (entry) => spoken(entry, "text", text)),
  thought_delta: (state, event, { text }) => inTurn(state, event, (entry) => spoken(entry, "thought", text)),
  tool_called: (state, event, { call, key }) =>
    inTurn(madeAgain(state, key), event, (entry) => withStep(entry, callOf(call, { key, at: event.at }))),
  tool_returned: (state, event, { result }) =>
    inTurn(state, event, (entry) => inCall(returned(entry, result), result.id, { endedAt: event.at })),
  custom_reported: (state, event, { name, data }) =>
    inTurn(state, event, (entry) => withStep(entry, { type: "custom", kind: name, data: data ?? null })),
  usage_reported: (state, event, { usage }) =>
    inTurn(state, event, (entry) => (used(usage) ? { ...entry, usage: sum(entry.usage, usage) } : entry)),
  steering_taken: (state, event, { steer, parts }) =>
    inTurn({ ...state, waiting: without(state.waiting, steer) }, event, (entry) => heard(entry, parts)),
  approval_decided: (state, event, { call, approved }) =>
    inTurn(state, event, (entry) => {
      const startedAt = approved && entry.state === "running" ? event.at : null;
      return inCall(entry, call, { approval: approved ? "approved" : "denied", startedAt });
    }),
  cancel_requested: (state, event) => (event.turn === state.running ? { ...state, cancelling: true } : state),

  turn_ended: (state, event, { outcome, may_have_run = [] }) => {
    const freed = { ...state, waiting: without(state.waiting, event.turn) };
    if (event.turn !== state.running) return freed;
    const ended = { ...freed, running: null, cancelling: false };
    return inTurn(ended, event, (entry) => {
      const settled = { ...hearAll(entry), state: "ended", outcome: outcomeOf(outcome), endedAt: event.at };
      return may_have_run.reduce((sofar, call) => inCall(sofar, call, { unknown: true }), settled);
    });
  },
  turn_recorded: (state, event, { messages = [] }) => ({
    ...state,
    waiting: without(state.waiting, event.turn),
    entries: [...state.entries, ...entriesOf({ messages, turns: [], calls: [], said: [] })],
  }),

  session_ended: (state) => ({ ...state, closed: "ended" }),
  session_expired: (state) => ({ ...state, closed: "expired" }),
  session_deleted: (state) => ({ ...state, closed: "deleted" }),
};

// --- entries: what stands in the conversation, a turn at a time ------------------------------------------------------

function newEntry(turn, agent) {
  return {
    turn,
    agent,
    input: null,
    steps: [],
    unheard: [],
    usage: null,
    state: "running",
    outcome: null,
    startedAt: null,
    endedAt: null,
    summary: null,
    cut: false,
  };
}

function entriesOf({ messages, turns, calls, said, unheard = [] }) {
  const known = new Map(turns.map((turn) => [turn.id, turn]));
  const entries = [];
  for (const message of messages) {
    const previous = entries.at(-1);
    const together = previous && message.turn && previous.turn === message.turn && message.role !== "summary";
    const entry = together ? previous : toldBy(message, known.get(message.turn));
    entries[together ? entries.length - 1 : entries.length] = withMessage(entry, message, together);
  }
  const running = turns.find((turn) => turn.state === "running");
  if (running && running.agent !== COMPACTOR) {
    const place = entries.findIndex((entry) => entry.turn === running.id);
    const begun = place < 0 ? toldBy({ turn: running.id }, running) : entries[place];
    const now = said.reduce((entry, message) => withMessage(entry, message, true), begun);
    entries[place < 0 ? entries.length : place] = { ...now, unheard };
  }
  return entries.map((entry) => withCalls(entry, calls));
}

/** What is known of the turn of a message; nothing of one that no agent ran, or that was forgotten with its session. */
function toldBy({ turn: id }, turn) {
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

/** An entry with what one of its messages says; a person's first words are its input, later ones were said to it. */
function withMessage(entry, message, together) {
  const placed = message.partial && !entry.outcome ? { ...entry, cut: entry.state === "ended" } : entry;
  if (message.role === "summary") return { ...placed, summary: textOf(message.parts) };
  if (message.role === "user" && !together) return { ...placed, input: inputOf(message) };
  if (message.role === "user") return withStep(placed, { type: "said", parts: message.parts });
  return message.parts.reduce((sofar, part) => withPart(sofar, part), placed);
}

function withPart(entry, part) {
  if (part.type === "text" || part.type === "thought") return spoken(entry, part.type, part.text);
  if (part.type === "tool_call") return withStep(entry, callOf(part));
  if (part.type === "tool_result") return returned(entry, part);
  return withStep(entry, { data: null, ...part });
}

/** Two lists of entries as one; a turn that was cut in two by a page is whole again. */
function joined(before, after) {
  const [last, first] = [before.at(-1), after[0]];
  if (!last?.turn || last.turn !== first?.turn) return [...before, ...after];
  // What a person said at the top of a page was said to a turn that began before it.
  const said = first.input ? [{ type: "said", parts: first.input.parts }] : [];
  const whole = { ...first, input: last.input, steps: [...said, ...first.steps].reduce(added, last.steps) };
  return [...before.slice(0, -1), whole, ...after.slice(1)];
}

// --- steps: what happened within a turn -------------------------------------------------------------------------------

const withStep = (entry, step) => ({ ...entry, steps: added(entry.steps, step) });

/** Words that follow words of the same kind are one piece of speech. */
function added(steps, step) {
  const last = steps.at(-1);
  const goesOn = last && last.type === step.type && (step.type === "text" || step.type === "thought");
  if (goesOn) return [...steps.slice(0, -1), { ...last, text: last.text + step.text }];
  if (step.type === "result" && steps.some((one) => one.type === "call" && one.id === step.id)) {
    return steps.map((one) => (one.type === "call" && one.id === step.id ? { ...one, result: step.result } : one));
  }
  return [...steps, step];
}

const spoken = (entry, type, text) => withStep(entry, { type, text });

/** A call as it is made: its tool runs at once, unless a person must allow it first, or it is the client's to run. */
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
    result: null,
    startedAt: approval || client ? null : at,
    endedAt: null,
  };
}

function returned(entry, { id, output = null, error = false }) {
  return hearIfPossible(withStep(entry, { type: "result", id, result: { output, error } }));
}

function inCall(entry, id, change) {
  return { ...entry, steps: entry.steps.map((step) => (step.type === "call" && step.id === id ? { ...step, ...change } : step)) };
}

/** An entry with what the ledger knows of its calls. It knows each where it was made last, and so none that was made again. */
function withCalls(entry, calls) {
  const lines = new Map(calls.filter(({ turn }) => turn === entry.turn).map((line) => [line.call, line]));
  return { ...entry, steps: entry.steps.map((step) => (step.type === "call" ? ledgered(entry, step, lines.get(step.id)) : step)) };
}

function ledgered(entry, step, line) {
  if (!line) return entry.agent && !step.result ? { ...step, ...AGAIN } : step;
  return {
    ...step,
    key: `${line.root}.${line.ordinal}`,
    approval: line.approval,
    unknown: line.effect === "unknown" && !step.client,
    startedAt: line.started_at ?? null,
    endedAt: line.ended_at ?? null,
  };
}

const AGAIN = { key: null, approval: "none", unknown: false, again: true, startedAt: null, endedAt: null };

/** The state in which an earlier call under this key is left for the one that is made now. */
function madeAgain(state, key) {
  const same = (step) => step.type === "call" && step.key === key;
  if (!state.entries.some((entry) => entry.steps.some(same))) return state;
  const left = (step) => (same(step) ? { ...step, ...AGAIN } : step);
  return { ...state, entries: state.entries.map((entry) => (entry.steps.some(same) ? { ...entry, steps: entry.steps.map(left) } : entry)) };
}

/** Steering is put in as the store does it: never between a call and its result. */
const heard = (entry, parts) => hearIfPossible({ ...entry, unheard: [...entry.unheard, parts] });

function hearIfPossible(entry) {
  const open = entry.steps.some((step) => step.type === "call" && !step.result);
  return open ? entry : hearAll(entry);
}

function hearAll(entry) {
  const said = entry.unheard.map((parts) => ({ type: "said", parts }));
  return said.length ? { ...entry, unheard: [], steps: [...entry.steps, ...said] } : entry;
}

// --- small things -----------------------------------------------------------------------------------------------------

const inputOf = ({ id, parts, at, role }) => ({ id, parts, at, role });
const outcomeOf = ({ type, reason = "" }) => ({ type, reason });
const without = (waiting, id) => (waiting.some((turn) => turn.id === id) ? waiting.filter((turn) => turn.id !== id) : waiting);
const used = ({ type, ...counts }) => Object.values(counts).some(Boolean);
const topOf = ({ window, behind, behind_until, messages }) => ({
  window,
  position: messages[0]?.position ?? 0,
  behind: behind ?? null,
  behindUntil: behind_until ?? null,
});

/** The words of these parts, as a person reads them. */
export const textOf = (parts) => parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");

/** What came with the words of these parts. */
export const besides = (parts) => parts.filter((part) => part.type !== "text");

/** The same parts in other words: files stay with what is said anew. */
export const reworded = (parts, text) => [{ type: "text", text }, ...besides(parts)];

function inTurn(state, event, change) {
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
