// The layout of the lineage: pure functions from windows to nodes and edges, newest at the top.
import { count, isolated } from "./format.js";
import { nameOf } from "./session_rows.js";

export const STEP = 64;
export const LANE = 34;
// The maximum width of all lanes together, so that the texts beside them have room.
const WIDEST = 2 * LANE;

const REASONS = {
  first: "Started",
  undo: "Undo",
  retry: "Retry",
  edit: "Edit",
  fork: "Forked",
  compaction: "Summarised",
  away: "Fork",
};

/** The windows, oldest first, with the sessions that were forked from them as branches. */
export function withForks(windows, forks) {
  const all = [...windows];
  for (const { session, window } of forks) {
    const isBefore = (other) => other.id === window.parent || isOlder(other, window);
    all.splice(all.findLastIndex(isBefore) + 1, 0, { ...window, id: session.id, opened: window.id, reason: "away", fork: session });
  }
  return all;
}

/** Whether a window is older than another. Within one millisecond, compare the ids, which sort by time. */
const isOlder = (one, other) => one.at < other.at || (one.at === other.at && (one.opened ?? one.id) < other.id);

/** Each window as a node with lane and height. A branch gets its own lane; a compaction stays in that of its parent. */
export function nodesOf(windows, current) {
  const lanes = new Map();
  const heads = new Map();
  let used = 0;
  const placed = windows.map((window, place) => {
    const parent = lanes.get(window.parent);
    const staysInLane = parent !== undefined && !heads.has(window.parent) && window.reason === "compaction";
    const lane = parent === undefined ? 0 : staysInLane ? parent : (used += 1);
    if (staysInLane) heads.set(window.parent, window.id);
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

/** The width of the drawing. */
export const widthOf = (nodes) => LANE / 2 + Math.max(LANE / 2, ...nodes.map((node) => node.x));

/** An edge from each window to its parent. */
export function edgesOf(nodes) {
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

/** A sentence that describes a window. */
export function descriptionOf({ reason, start, summarises_until: summarised, fork }) {
  const kept = count(start, "message");
  switch (reason) {
    case "first":
      return "Start of the session.";
    case "undo":
      return `The last turn was undone; ${kept} kept.`;
    case "retry":
      return `The last message was answered again, after ${kept}.`;
    case "edit":
      return `A message was edited, after ${kept}.`;
    case "fork":
      return `Forked from another session, with ${kept}.`;
    case "away":
      return `Continues as “${isolated(nameOf(fork))}”, after ${kept}.`;
    default:
      return summarised ? `Summarises the ${count(summarised, "message")} before it.` : "Earlier messages were summarised for the agent.";
  }
}
