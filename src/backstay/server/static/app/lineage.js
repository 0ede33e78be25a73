// The lineage as a picture: pure functions from windows to nodes and lines, newest at the top.
import { nameOf } from "./lines.js";
import { count } from "./words.js";

export const STEP = 64;
export const LANE = 34;
// However many lanes there are, the words beside them want their place.
const WIDEST = 2 * LANE;

const REASONS = {
  first: "Began",
  undo: "Undo",
  retry: "Retry",
  edit: "Edit",
  fork: "Forked",
  compaction: "Summarised",
  away: "Fork",
};

/** The windows with the sessions that were forked from them: each is a branch that leads away. */
export function withForks(windows, forks) {
  const away = forks.map(({ line, window }) => ({ ...window, id: line.id, reason: "away", fork: line }));
  return [...windows, ...away].sort((one, other) => one.at - other.at);
}

/** Each window as a node with its lane and height; a branch takes a lane of its own, a compaction goes on in its parent's. */
export function nodesOf(windows, current) {
  const lanes = new Map();
  const heads = new Map();
  let used = 0;
  const placed = windows.map((window, place) => {
    const parent = lanes.get(window.parent);
    const goesOn = parent !== undefined && !heads.has(window.parent) && window.reason === "compaction";
    const lane = parent === undefined ? 0 : goesOn ? parent : (used += 1);
    if (goesOn) heads.set(window.parent, window.id);
    lanes.set(window.id, lane);
    return {
      window,
      lane,
      y: STEP / 2 + (windows.length - 1 - place) * STEP,
      name: REASONS[window.reason] ?? window.reason,
      current: window.id === current,
    };
  });
  const apart = Math.min(LANE, WIDEST / Math.max(1, used));
  return placed.map((node) => ({ ...node, x: LANE / 2 + node.lane * apart }));
}

/** How wide the picture is. */
export const widthOf = (nodes) => LANE / 2 + Math.max(LANE / 2, ...nodes.map((node) => node.x));

/** A line from each window to the one it came from. */
export function linesOf(nodes) {
  const byId = new Map(nodes.map((node) => [node.window.id, node]));
  return nodes
    .map((node) => ({ node, parent: byId.get(node.window.parent) }))
    .filter(({ parent }) => parent)
    .map(({ node, parent }) => ({
      id: node.window.id,
      reason: node.window.reason,
      path:
        node.x === parent.x
          ? `M${parent.x} ${parent.y}V${node.y}`
          : `M${parent.x} ${parent.y}C${parent.x} ${parent.y - STEP * 0.7} ${node.x} ${node.y + STEP * 0.9} ${node.x} ${node.y}`,
    }));
}

/** How a window is told of in a sentence. */
export function toldOf({ reason, start, behind_until: behind, fork }) {
  const kept = count(start, "message");
  switch (reason) {
    case "first":
      return "The session began, with nothing in it.";
    case "undo":
      return `The last turn was taken back; ${kept} stayed.`;
    case "retry":
      return `The last message was answered again, after ${kept}.`;
    case "edit":
      return `A message was said differently, after ${kept}.`;
    case "fork":
      return `Begun as a copy of another session, with ${kept}.`;
    case "away":
      return `Goes on as “${nameOf(fork)}”, after ${kept}.`;
    default:
      return behind ? `Stands for ${count(behind, "message")} before it.` : "What came before was summarised for the agent.";
  }
}
