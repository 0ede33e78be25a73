// Registers the service worker. Browsers have it only on HTTPS and on this machine.
const SCRIPT = "/service-worker.js";

/** The registration, or null where the browser has no service workers. */
export const registered = register();

async function register() {
  if (!navigator.serviceWorker) return null;
  const policy = globalThis.trustedTypes?.createPolicy("backstay-service-worker", { createScriptURL: (url) => (url === SCRIPT ? url : "") });
  return navigator.serviceWorker.register(policy ? policy.createScriptURL(SCRIPT) : SCRIPT).catch(() => null);
}
