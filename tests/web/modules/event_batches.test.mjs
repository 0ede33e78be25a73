// Batches: an answer in any pieces gives the same conversation, and no frame gets more than it can draw.
import assert from "node:assert/strict";
import { test } from "node:test";

import { countOf, piecesOf, sizeAfter } from "../../../src/backstay/server/static/app/event_batches.js";
import { open, reduce } from "../../../src/backstay/server/static/app/reduce.js";

const START = open({
  session: { id: "ses_1", last_event: 1, state: "open" },
  window: "win_1",
  messages: [],
  turns: [],
  calls: [],
  said: [],
  waiting: [],
});
const eventsOf = (...bodies) =>
  bodies.map((body, place) => ({ session: "ses_1", turn: "turn_1", number: place + 2, last: place + 2, at: place, body }));
const words = (kind, text) => ({ kind, text });
const EVENTS = eventsOf(
  { kind: "turn_started", agent: "default", message: null },
  words("thought_delta", "hm ".repeat(400)),
  words("text_delta", "😀".repeat(700) + "é"),
  { kind: "tool_called", call: { id: "c", name: "calculator" } },
  { kind: "tool_returned", result: { id: "c", output: "4" } },
  words("text_delta", "short"),
  words("text_delta", ""),
  words("text_delta", "line\n".repeat(3000)),
  { kind: "turn_ended", outcome: { type: "completed" } },
);
const applied = (state, events) => events.reduce(reduce, state);
const PIECES = EVENTS.flatMap(piecesOf);

test("an answer in pieces gives the same conversation as in one", () => {
  assert.deepEqual(applied(START, PIECES), applied(START, EVENTS));
  assert.ok(PIECES.length > 60);
});

test("no piece is long, and no letter is cut in two", () => {
  for (const { body } of PIECES.filter((piece) => piece.body.text)) {
    assert.ok([...body.text].length <= 256);
    assert.ok(body.text.isWellFormed());
  }
});

test("a piece that is missing is noticed, and a repeated one changes nothing", () => {
  const whole = applied(START, PIECES);
  for (let place = 0; place < PIECES.length - 1; place += 1) {
    assert.ok(applied(START, PIECES.toSpliced(place, 1)).stale, `piece ${place} was not missed`);
    const twice = PIECES.toSpliced(place, 0, PIECES[place]);
    assert.deepEqual(applied(START, twice), whole);
    assert.deepEqual(applied(applied(START, PIECES.slice(0, place)), EVENTS.slice(0, 1)), applied(START, PIECES.slice(0, Math.max(1, place))));
  }
});

test("batches of any size come to the whole, each within its size unless it is a single piece", () => {
  for (const size of [1, 256, 700, 4096, 1e9]) {
    let left = PIECES;
    let state = START;
    while (left.length) {
      const count = countOf(left, size);
      const batch = left.slice(0, count);
      const letters = batch.reduce((sum, { body }) => sum + (body.text?.length ?? 0), 0);
      assert.ok(count === 1 || letters <= size);
      state = applied(state, batch);
      left = left.slice(count);
    }
    assert.deepEqual(state, applied(START, EVENTS));
  }
});

test("a slow frame is followed by a smaller batch, a fast one by a larger, within bounds", () => {
  assert.ok(sizeAfter(1024, 30) < 1024);
  assert.ok(sizeAfter(1024, 1) > 1024);
  let [small, large] = [512, 512];
  for (let times = 0; times < 50; times += 1) [small, large] = [sizeAfter(small, 1000), sizeAfter(large, 0)];
  assert.ok(small >= 256 && large <= 4096);
});
