// Web Push: this browser, and the other devices that get notifications.
import { get, post, put, remove } from "./api.js";
import { go } from "./route.js";
import { registered } from "./service_worker.js";

/** Whether this browser can get notifications: on HTTPS or this machine, and on some phones only once it is installed. */
export const canNotify = () => "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

export const readDevices = () => get("/api/push");
export const removeDevice = (number) => remove(`/api/push/devices/${number}`);
export const readChoice = (session) => get(`/api/sessions/${session}/push`);
export const setChoice = (session, choice) => put(`/api/sessions/${session}/push`, choice);

/** Ask the person for permission, subscribe this browser, and tell the server. Throws if one of them refuses. */
export async function addThisDevice(publicKey, name, text) {
  if ((await Notification.requestPermission()) !== "granted") throw new Error("This browser does not allow notifications from this page.");
  const registration = await registered;
  if (!registration) throw new Error("This browser has no service worker for this page.");
  await navigator.serviceWorker.ready;
  const old = await registration.pushManager.getSubscription();
  // A subscription to another server's key gets nothing from this one.
  if (old && encoded(old.options.applicationServerKey) !== publicKey) await old.unsubscribe();
  const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey });
  return post("/api/push/devices", { subscription: subscription.toJSON(), name, text });
}

const encoded = (key) => btoa(String.fromCharCode(...new Uint8Array(key))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

// A click on a notification shows its session in this window.
navigator.serviceWorker?.addEventListener("message", ({ data }) => data?.session && go(data.session));
