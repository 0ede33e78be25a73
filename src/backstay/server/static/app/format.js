// Formatting of numbers, times and names.

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const clock = (at) => CLOCK.format(at);

export const day = (at) => DAY.format(at);

/** A short time for the list. */
export function when(at, now = Date.now()) {
  const minutes = Math.floor((now - at) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (new Date(at).toDateString() === new Date(now).toDateString()) return clock(at);
  return DATE.format(at);
}

/** A duration. */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** A size in bytes. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1 << 20 ? `${(bytes / 1024).toFixed(0)} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`;
}

// Bidi controls, which reorder the text around them: a name could use them to imitate another.
const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g;
const FROM_THE_RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** A name with every bidi control replaced by U+FFFD. The element that shows it must isolate it too (dir="auto"). */
export const named = (text) => text.replace(REORDERING, "\ufffd");

/** A name for places where no element can isolate it: a sentence, a label or the title of the window. */
export const isolated = (text) => (FROM_THE_RIGHT.test(text) ? `\u2068${named(text)}\u2069` : named(text));

/** A text without Markdown markup, for a single line. */
export const plain = (text) => text.replace(/(\*\*|__|`+)(?=\S)|(?<=\S)(\*\*|__|`+)/g, "").replace(/(^|\n)\s*(#{1,6}|>|[-*])\s+/g, "$1");

/** A text as a sentence: capitalised, unless it begins with an identifier, and with a full stop. */
export const sentence = (text) => text.replace(/^[a-z](?![a-z]*_)/, (letter) => letter.toUpperCase()) + (/[.!?…][)\]"'”’]*$/.test(text) ? "" : ".");

export const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;

/** The token usage and cost of a turn. */
export function usage({ input, output, cached, cost, model }) {
  const read = cached ? `${input.toLocaleString()} in (${cached.toLocaleString()} cached)` : `${input.toLocaleString()} in`;
  const paid = cost ? ` · $${cost.toFixed(cost < 0.01 ? 4 : 2)}` : "";
  return `${model ? `${model} · ` : ""}${read} · ${output.toLocaleString()} out${paid}`;
}
