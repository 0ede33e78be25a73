// Where the page begins: it learns what the server is, opens what the address names, and listens.
import { effect, untracked } from "../vendor/page.js";
import { html, render } from "./html.js";
import "./keys.js";
import { nameOf } from "./lines.js";
import { connection, rest, wake } from "./link.js";
import { enter, line, past, running, story } from "./room.js";
import { route } from "./route.js";
import { about, learn } from "./server.js";
import { sheet, sidebar } from "./sheet.js";
import { loaded, more } from "./shelf.js";
import "./theme.js";
import { Shell } from "./views/shell.js";

const page = document.getElementById("page");
page.textContent = "";
render(html`<${Shell} />`, page);

let entered;
effect(() => {
  const { session, message, view } = route.value;
  untracked(() => {
    if (view === "lineage") past.value = null;
    sheet.value = null;
    sidebar.value = false;
    if (session === entered && !message) return;
    entered = session;
    enter(session, message);
  });
});

effect(() => {
  const name = line.value ? nameOf(line.value) : "Backstay";
  const sign = connection.value.state === "lost" ? "⚠ " : running.value ? "… " : "";
  document.title = sign + name + (line.value ? " · Backstay" : "");
});

// What could not be learned while the server was away is learned when it is back; perhaps others answer there by now.
let missed = true;
effect(() => {
  const { state } = connection.value;
  untracked(() => {
    const away = state === "lost" || state === "stranger";
    if (missed && !away) learn().catch(() => {});
    if (!loaded.value && !away) more().catch(() => {});
    missed = away || !about.value;
  });
});

// A browser has few connections for all its tabs: one that nobody looks at, and in which nothing runs, lets go of its own.
let resting = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(resting);
  if (document.hidden) resting = setTimeout(() => !story.value?.running && rest(), 20_000);
  else wake();
});
