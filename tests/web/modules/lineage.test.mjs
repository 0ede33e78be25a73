// The lineage: windows and forks stand in the order in which they were opened.
import assert from "node:assert/strict";
import { test } from "node:test";

import { withForks } from "../../../src/backstay/server/static/app/lineage.js";

const opened = (id, at, parent = null) => ({ id, at, parent, reason: parent ? "undo" : "first", start: 0 });
const fork = (id, at, parent) => ({ session: { id: `ses_${id}` }, window: { ...opened(id, at, parent), reason: "fork" } });
const orderOf = (windows, ...forks) => withForks(windows, forks).map((window) => window.id);

test("a fork stands after every window that was opened before it", () => {
  const windows = [opened("win_1", 10), opened("win_3", 30, "win_1")];
  assert.deepEqual(orderOf(windows, fork("win_2", 20, "win_1")), ["win_1", "ses_win_2", "win_3"]);
});

test("within one millisecond the ids decide", () => {
  const windows = [opened("win_1", 10), opened("win_3", 10, "win_1")];
  const forks = [fork("win_4", 10, "win_1"), fork("win_2", 10, "win_1")];
  assert.deepEqual(orderOf(windows, ...forks), ["win_1", "ses_win_2", "win_3", "ses_win_4"]);
  assert.deepEqual(orderOf(windows, ...forks.toReversed()), ["win_1", "ses_win_2", "win_3", "ses_win_4"]);
});

test("a fork stands after its parent, also when the clock went backwards", () => {
  const windows = [opened("win_1", 10), opened("win_2", 20, "win_1")];
  assert.deepEqual(orderOf(windows, fork("win_3", 5, "win_2")), ["win_1", "win_2", "ses_win_3"]);
});
