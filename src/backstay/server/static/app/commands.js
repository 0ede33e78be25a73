// Slash commands: what can be done without leaving the keyboard. Any other word with a slash is said to the agent.
import { compact, create, file, fork, redo, retry, save, stop, undo } from "./actions.js";
import { tell } from "./notices.js";
import { current } from "./room.js";
import { go } from "./route.js";
import { sheet } from "./sheet.js";

export const COMMANDS = [
  { name: "new", what: "Begin a new session", run: () => create() },
  { name: "undo", what: "Take the last turn back", run: undo },
  { name: "redo", what: "Bring it back", run: redo },
  { name: "retry", what: "Have the last message answered again", run: () => retry() },
  { name: "fork", what: "Go on in a copy of this session", run: () => fork() },
  { name: "compact", what: "Have what came before summarised for the agent", run: compact },
  { name: "stop", what: "Stop the answer", run: stop },
  { name: "rename", what: "Give this session a name: /rename Tea", run: rename },
  { name: "lineage", what: "See what became of this session", run: () => go(current.value, "lineage") },
  { name: "export", what: "Save this session as a file", run: () => save(current.value) },
  { name: "help", what: "Shortcuts and commands", run: () => (sheet.value = "help") },
];

function rename(name) {
  if (name) return file(current.value, { title: name });
  return tell("Write the name after the command: /rename Tea");
}

/** The commands that begin like this, while a command is being written. */
export function suggested(text) {
  const found = /^\/(\w*)$/.exec(text);
  return found ? COMMANDS.filter((command) => command.name.startsWith(found[1])) : [];
}

/** The command a text is, and what follows its name; nothing if it is none of ours. */
export function commandOf(text) {
  const found = /^\/(\w+)(?:\s+(.*))?$/.exec(text.trim());
  const command = found && COMMANDS.find(({ name }) => name === found[1]);
  return command ? { command, rest: found[2] ?? "" } : null;
}
