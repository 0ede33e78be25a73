// HTTP requests to the API, and the error that they throw.
import { signal } from "../vendor/page.js";

/** Incremented when the server responds that this browser is not signed in. */
export const signedOut = signal(0);

/** An error response of the server, with its hint. `status` 0: the server could not be reached. */
export class Refused extends Error {
  constructor(status, code, title, hint) {
    super(title);
    Object.assign(this, { status, code, hint });
  }

  get unreachable() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** Send a request. Returns the decoded JSON, or null for an empty response. */
export async function request(method, path, { body, headers = {}, query = {}, raw, type = "application/octet-stream", keepalive = false } = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const url = pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
  const sent = raw ? { body: raw, type } : { body: JSON.stringify(body), type: "application/json" };
  const typed = body === undefined && !raw ? {} : { "content-type": sent.type };
  const response = await fetch(url, { method, headers: { ...typed, ...headers }, body: sent.body, keepalive }).catch(() => null);
  if (!response) throw new Refused(0, "unreachable", "Can't reach the server.", "Try again when it is back.");
  if (response.ok) return response.status === 204 ? null : response.json();
  if (response.status === 401) throw signedOutError();
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.code, problem.title ?? response.statusText, problem.hint ?? "");
}

function signedOutError() {
  signedOut.value += 1;
  return new Refused(401, "unauthorized", "This browser is no longer signed in.", "Open a sign-in link from `backstay link`.");
}

export const get = (path, query) => request("GET", path, { query });
export const post = (path, body = {}, headers) => request("POST", path, { body, headers });
export const put = (path, body) => request("PUT", path, { body });
export const patch = (path, body) => request("PATCH", path, { body });
export const remove = (path) => request("DELETE", path);

/** POST until the server responds. Repetitions have the same Idempotency-Key, so the request is executed once. */
export async function postUntilAccepted(path, body, onRetry = () => {}) {
  const headers = { "idempotency-key": crypto.randomUUID?.() ?? key() };
  return retryWhileUnreachable(() => post(path, body, headers), onRetry);
}

/** Repeat an idempotent request until the server responds, or until `isWanted` returns false. */
export async function retryWhileUnreachable(send, onRetry = () => {}, isWanted = () => true) {
  for (let wait = 250; ; wait = Math.min(wait * 2, 4000)) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof Refused) || !error.unreachable || !isWanted()) throw error;
      onRetry(error);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

const key = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
