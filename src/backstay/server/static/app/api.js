// The API: one function that asks, and errors that say what the server said.
import { signal } from "../vendor/page.js";

/** Grows when the server says that it does not know us. */
export const unknown = signal(0);

/** What the server refused, with its hint of what to do next. `status` 0: it could not be reached. */
export class Refused extends Error {
  constructor(status, code, title, hint) {
    super(title);
    Object.assign(this, { status, code, hint });
  }

  get unreachable() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** Ask for something; what comes back as JSON, or nothing. */
export async function ask(method, path, { body, headers = {}, query = {}, raw, keepalive = false } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const url = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const sent = raw ? { body: raw, type: "application/octet-stream" } : { body: JSON.stringify(body), type: "application/json" };
  const typed = body === undefined && !raw ? {} : { "content-type": sent.type };
  const answer = await fetch(url, { method, headers: { ...typed, ...headers }, body: sent.body, keepalive }).catch(() => null);
  if (!answer) throw new Refused(0, "unreachable", "The server cannot be reached.", "Try again when it is back.");
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  if (answer.status === 401) throw stranger();
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.code, problem.title ?? answer.statusText, problem.hint ?? "");
}

function stranger() {
  unknown.value += 1;
  return new Refused(401, "unauthorized", "This browser is no longer signed in.", "Open a link that `backstay link` makes.");
}

export const get = (path, query) => ask("GET", path, { query });
export const post = (path, body = {}, headers) => ask("POST", path, { body, headers });
export const put = (path, body) => ask("PUT", path, { body });
export const patch = (path, body) => ask("PATCH", path, { body });
export const remove = (path) => ask("DELETE", path);

/** Ask until there is an answer: what was not acknowledged is sent again under the same key, and happens once. */
export async function insist(path, body, told = () => {}) {
  const headers = { "idempotency-key": crypto.randomUUID?.() ?? key() };
  return persist(() => post(path, body, headers), told);
}

/** Ask for something that may be asked for twice until there is an answer, or it is not wanted any more. */
export async function persist(work, told = () => {}, wanted = () => true) {
  for (let wait = 250; ; wait = Math.min(wait * 2, 4000)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Refused) || !error.unreachable || !wanted()) throw error;
      told(error);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

const key = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
