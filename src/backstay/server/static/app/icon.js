// Line icons in the colour of the text beside them.
import { html } from "./html.js";

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  close: "M6 6l12 12M18 6 6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  down: "M12 5v14M6 13l6 6 6-6",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5 10 17 19 7",
  retry: "M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5",
  undo: "M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3",
  redo: "M15 14l5-5-5-5M20 9H10a6 6 0 0 0 0 12h3",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  fork: "M7 4v16M7 15c0-6 10-3 10-10M17 5l-3 3M17 5l3 3",
  tool: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
  thought: "M8 18a4 4 0 0 1-1-7.9A5 5 0 0 1 16.7 9 4.5 4.5 0 0 1 16 18zM7 21h.01",
  chevron: "M9 6l6 6-6 6",
  clip: "M8 12.5l6-6a3.2 3.2 0 0 1 4.5 4.5l-8 8a5 5 0 0 1-7-7l7.5-7.5",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  archive: "M4 5h16v4H4zM5 9v10h14V9M10 13h4",
  more: "M4.5 12a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0M11.3 12a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0M18.1 12a.7.7 0 1 0 1.4 0 .7.7 0 1 0-1.4 0",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  lineage: "M7 20.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM7 7.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM17 11.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM7 7.5v9M7 16c0-4 10 0 10-4.5",
  warn: "M12 4 3 19h18zM12 10v4M12 16.5v.01",
  bell: "M6 17V11a6 6 0 0 1 12 0v6M4 17h16M10 20.5h4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  up: "M12 19V5M6 11l6-6 6 6",
  tag: "M4 4h8l8 8-8 8-8-8zM8.5 8.5h.01",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Z",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}
