// The entry point: reads the server's information, opens the session of the address, and follows the event stream.
import { effect, untracked } from "../vendor/page.js";
import { openDialog, sidebar } from "./dialog_state.js";
import { connection, disconnect, reconnect } from "./event_stream.js";
import { isolated } from "./format.js";
import { html, render } from "./html.js";
import { currentSession, openSession, past, running, sessionState } from "./open_session.js";
import { route } from "./route.js";
import { about, loadAbout } from "./server.js";
import { loaded, loadMore } from "./session_list.js";
import { nameOf } from "./session_rows.js";
import "./service_worker.js";
import "./shortcuts.js";
import "./theme.js";
import { Shell } from "./views/shell.js";

const root = document.getElementById("app");
root.textContent = "";
render(html`<${Shell} />`, root);

let openedId;
effect(() => {
  const { session, message, view } = route.value;
  untracked(() => {
    if (view === "lineage") past.value = null;
    openDialog.value = null;
    sidebar.value = false;
    if (session === openedId && !message) return;
    openedId = session;
    openSession(session, message);
  });
});

effect(() => {
  const name = currentSession.value ? isolated(nameOf(currentSession.value)) : "Backstay";
  const sign = connection.value.state === "lost" ? "⚠ " : running.value ? "… " : "";
  document.title = sign + name + (currentSession.value ? " · Backstay" : "");
});

// Requests that failed while the server was away are repeated when it is back; its agents may have changed.
let missed = true;
effect(() => {
  const { state } = connection.value;
  untracked(() => {
    const away = state === "lost" || state === "signed-out";
    if (missed && !away) loadAbout().catch(() => {});
    if (!loaded.value && !away) loadMore().catch(() => {});
    missed = away || !about.value;
  });
});

// Browsers allow few connections for all tabs: a hidden tab in which no turn runs closes its stream.
let hiddenTimer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(() => !sessionState.value?.running && disconnect(), 20_000);
  else reconnect();
});
