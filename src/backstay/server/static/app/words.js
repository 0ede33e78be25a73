// Numbers and times as people say them.

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const clock = (at) => CLOCK.format(at);

export const day = (at) => DAY.format(at);

/** When, as short as a list needs it. */
export function when(at, now = Date.now()) {
  const minutes = Math.floor((now - at) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (new Date(at).toDateString() === new Date(now).toDateString()) return clock(at);
  return DATE.format(at);
}

/** How long. */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** How many bytes. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1 << 20 ? `${(bytes / 1024).toFixed(0)} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`;
}

/** Words without the marks of Markdown, for where there is room for one line. */
export const plain = (text) => text.replace(/(\*\*|__|`+)(?=\S)|(?<=\S)(\*\*|__|`+)/g, "").replace(/(^|\n)\s*(#{1,6}|>|[-*])\s+/g, "$1");

/** A text as a sentence: with a large letter, unless it begins with an id, and with an end. */
export const sentence = (text) => text.replace(/^[a-z](?![a-z]*_)/, (letter) => letter.toUpperCase()) + (/[.!?…][)\]"'”’]*$/.test(text) ? "" : ".");

export const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;

/** What a turn used. */
export function usage({ input, output, cached, cost, model }) {
  const read = cached ? `${input.toLocaleString()} in (${cached.toLocaleString()} cached)` : `${input.toLocaleString()} in`;
  const paid = cost ? ` · $${cost.toFixed(cost < 0.01 ? 4 : 2)}` : "";
  return `${model ? `${model} · ` : ""}${read} · ${output.toLocaleString()} out${paid}`;
}
