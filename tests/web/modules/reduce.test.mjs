// The reducer against logs of a real server: from every snapshot that was read, the events lead to every later one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as passages from "../../../src/backstay/server/static/app/passage.js";
import { join, open, prepend, reduce } from "../../../src/backstay/server/static/app/reduce.js";

const { recordings } = JSON.parse(readFileSync(process.env.BACKSTAY_RECORDED));

function frozen(value) {
  if (value && typeof value === "object") Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

const applied = (state, events) => events.reduce((sofar, event) => frozen(reduce(sofar, event)), frozen(state));
const between = (events, low, high) => events.filter((event) => event.number > low && event.number <= high);

for (const { name, snapshots, events, pages } of recordings) {
  test(`${name}: whoever opens it at any moment and follows it sees what whoever opens it later sees`, () => {
    let compared = 0;
    for (const [place, early] of snapshots.entries()) {
      for (const late of snapshots.slice(place)) {
        const state = applied(open(early), between(events, early.session.last_event, late.session.last_event));
        if (state.stale) continue;
        assert.deepEqual(state, open(late));
        compared += 1;
      }
    }
    assert.ok(compared > snapshots.length, "more is compared than each snapshot with itself");
  });

  test(`${name}: repeated events, in pieces or twice, change nothing`, () => {
    const whole = applied(open(snapshots[0]), events);
    for (let cut = 0; cut <= events.length; cut += 1) {
      const half = applied(open(snapshots[0]), events.slice(0, cut));
      assert.deepEqual(applied(half, events), whole);
    }
  });

  test(`${name}: whatever is missed is noticed`, () => {
    const start = open(snapshots[0]);
    const whole = events.filter((event) => event.number > start.number);
    for (let missing = 0; missing < whole.length - 1; missing += 1) {
      assert.ok(applied(start, whole.toSpliced(missing, 1)).stale, `event ${whole[missing].number} was not missed`);
    }
  });

  test(`${name}: paged upwards it is the same as read at once`, () => {
    const [newest, ...older] = pages;
    const state = older.reduce((sofar, page) => prepend(sofar, page), open(newest));
    assert.deepEqual({ ...state, top: null }, { ...open(snapshots.at(-1)), top: null });
  });

  test(`${name}: read on from any message in both directions it is the same as read at once`, () => {
    const whole = snapshots.at(-1);
    const page = (before, last) => pageOf(whole, before, last);
    for (const size of [1, 2, 3, 5, 8]) {
      for (const { position } of whole.messages) {
        const end = open(page(whole.length, size));
        if (position >= end.top.position) continue;
        const shown = readOn(page, passages.begin(page(Math.min(position + 1 + size, whole.length), 2 * size), end.top), end, size);
        assert.deepEqual({ ...shown, top: null }, { ...open(whole), top: null });
      }
    }
  });
}

/** The last messages before a position, with all else that a server tells of them. */
function pageOf(whole, before, last) {
  const messages = whole.messages.filter(({ position }) => position < before && position >= before - last);
  const turns = whole.turns.filter(({ id, state }) => state !== "ended" || messages.some(({ turn }) => turn === id));
  return { ...whole, messages, turns };
}

/** What a reader sees who reads a passage to the beginning and to the end. */
function readOn(page, begun, end, size) {
  const chain = passages.chainOf([{ id: end.window, summarises: null }], end.window);
  let passage = begun;
  for (let place; (place = passages.next(passage, end.top, chain, size)); ) {
    passage = passages.below(passage, page(place.before, place.last), place);
  }
  assert.ok(passages.meets(passage, end.top, chain));
  while (passage.state.top.position > 0) passage = passages.above(passage, page(passage.state.top.position, size));
  return frozen(join(passage.state, end));
}

test("a passage is read on through the windows that summaries stand for", () => {
  const windows = [
    { id: "one", summarises: null },
    { id: "two", summarises: "one", summarises_until: 7 },
    { id: "undone", summarises: "one", summarises_until: 7 },
    { id: "three", summarises: "two", summarises_until: 4 },
  ];
  const chain = passages.chainOf(windows, "three");
  assert.deepEqual(chain, [{ window: "one", until: 7 }, { window: "two", until: 4 }, { window: "three", until: Infinity }]);
  const top = { window: "three", position: 6 };
  const at = (window, position) => passages.next({ bottom: { window, position } }, top, chain, 5);
  assert.deepEqual(at("one", 1), { window: "one", before: 6, last: 5 });
  assert.deepEqual(at("one", 6), { window: "one", before: 7, last: 1 });
  assert.deepEqual(at("one", 7), { window: "two", before: 4, last: 4 });
  assert.deepEqual(at("two", 4), { window: "three", before: 5, last: 5 });
  assert.deepEqual(at("three", 5), { window: "three", before: 6, last: 1 });
  assert.equal(at("three", 6), null);
  assert.equal(at("undone", 3), null);
  assert.ok(passages.meets({ bottom: { window: "two", position: 4 } }, { window: "three", position: 0 }, chain));
  assert.ok(!passages.meets({ bottom: { window: "undone", position: 9 } }, top, chain));
});
