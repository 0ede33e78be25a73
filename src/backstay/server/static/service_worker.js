// The service worker: shows notifications, and a page when the server cannot be reached. It keeps no conversation.
const CACHE = "offline-1";
const OFFLINE = "/static/offline.html";

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll([OFFLINE, "/static/sign_in.css", "/static/mark.svg"])));
  self.skipWaiting();
});

self.addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)))));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => caches.match(OFFLINE)));
  else if (new URL(request.url).pathname === "/static/sign_in.css") event.respondWith(fetch(request).catch(() => caches.match(request)));
});

self.addEventListener("push", (event) => {
  const { title, body, session, needs_you: needsYou } = event.data.json();
  // A later message about the same session replaces this one.
  const options = { body, tag: session, renotify: needsYou, requireInteraction: needsYou, data: { session }, icon: "/static/icons/mark-192.png" };
  event.waitUntil(self.registration.showNotification(title, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data.session));
});

/** Show a session in an open window of the web UI, or in a new one. */
async function show(session) {
  const [open] = await self.clients.matchAll({ type: "window" });
  if (!open) return self.clients.openWindow(`/#${session}`);
  open.postMessage({ session });
  return open.focus();
}
