// Slash commands. Any other text that begins with a slash is sent to the agent.
import { compact, create, downloadSession, fork, redo, retry, stop, undo, updateSession } from "./actions.js";
import { openDialog } from "./dialog_state.js";
import { showNotice } from "./notices.js";
import { current } from "./open_session.js";
import { go } from "./route.js";

export const COMMANDS = [
  { name: "new", what: "Start a new session", run: () => create() },
  { name: "undo", what: "Undo the last turn", run: undo },
  { name: "redo", what: "Redo it", run: redo },
  { name: "retry", what: "Answer the last message again", run: () => retry() },
  { name: "fork", what: "Continue in a copy of this session", run: () => fork() },
  { name: "compact", what: "Summarise earlier messages for the agent", run: compact },
  { name: "stop", what: "Stop the answer", run: stop },
  { name: "rename", what: "Rename this session: /rename Tea", run: rename },
  { name: "lineage", what: "Show the versions of this conversation", run: () => go(current.value, "lineage") },
  { name: "export", what: "Export this session to a file", run: () => downloadSession(current.value) },
  { name: "help", what: "Shortcuts and commands", run: () => (openDialog.value = "help") },
];

function rename(name) {
  if (name) return updateSession(current.value, { title: name });
  return showNotice("Add the name after the command: /rename Tea");
}

/** The commands that match while a command is being typed. */
export function suggested(text) {
  const found = /^\/(\w*)$/.exec(text);
  return found ? COMMANDS.filter((command) => command.name.startsWith(found[1])) : [];
}

/** The command in a text and its argument; null if the text is not one of our commands. */
export function commandOf(text) {
  const found = /^\/(\w+)(?:\s+(.*))?$/.exec(text.trim());
  const command = found && COMMANDS.find(({ name }) => name === found[1]);
  return command ? { command, rest: found[2] ?? "" } : null;
}
