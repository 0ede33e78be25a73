// The reducer against logs of a real server: from every chapter that was read, the events lead to every later one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { open, prepend, reduce } from "../../src/backstay/server/static/app/reduce.js";

const { stories } = JSON.parse(readFileSync(process.env.BACKSTAY_RECORDED));

function frozen(value) {
  if (value && typeof value === "object") Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

const told = (state, events) => events.reduce((sofar, event) => frozen(reduce(sofar, event)), frozen(state));
const between = (events, low, high) => events.filter((event) => event.number > low && event.number <= high);

for (const { name, chapters, events, pages } of stories) {
  test(`${name}: whoever opens it at any moment and follows it sees what whoever opens it later sees`, () => {
    let compared = 0;
    for (const [place, early] of chapters.entries()) {
      for (const late of chapters.slice(place)) {
        const state = told(open(early), between(events, early.session.last_event, late.session.last_event));
        if (state.stale) continue;
        assert.deepEqual(state, open(late));
        compared += 1;
      }
    }
    assert.ok(compared > chapters.length, "more is compared than each chapter with itself");
  });

  test(`${name}: what is told again, in pieces or twice, changes nothing`, () => {
    const whole = told(open(chapters[0]), events);
    for (let cut = 0; cut <= events.length; cut += 1) {
      const half = told(open(chapters[0]), events.slice(0, cut));
      assert.deepEqual(told(half, events), whole);
    }
  });

  test(`${name}: whatever is missed is noticed`, () => {
    const start = open(chapters[0]);
    const whole = events.filter((event) => event.number > start.number);
    for (let missing = 0; missing < whole.length - 1; missing += 1) {
      assert.ok(told(start, whole.toSpliced(missing, 1)).stale, `event ${whole[missing].number} was not missed`);
    }
  });

  test(`${name}: paged upwards it is the same as read at once`, () => {
    const [newest, ...older] = pages;
    const state = older.reduce((sofar, page) => prepend(sofar, page), open(newest));
    assert.deepEqual({ ...state, top: null }, { ...open(chapters.at(-1)), top: null });
  });
}
