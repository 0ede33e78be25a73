// A helping: as much of what was told as can be drawn in one picture. However fast an answer comes, and however long
// the page did not hear, the browser stays free for its reader.

const PIECE = 256;
const LEAST = PIECE;
const MOST = 16 * PIECE;
// A picture has 16 ms, and layout and paint want some of it.
const CALM = 4;
const BUSY = 8;

/** An event in pieces that are drawn quickly. Pieces of long words are numbered in fractions of the event's number, each
 *  one more than where the piece before it ends, so that the reducer notices a piece that is missing like an event. */
export function piecesOf(event) {
  const { body } = event;
  if (!spoken(body) || body.text.length <= PIECE) return [event];
  const texts = body.text.match(/[^]{1,256}/gu);
  const end = (pieces) => event.number - 1 + pieces / texts.length;
  return texts.map((text, place) => ({ ...event, number: end(place) + 1, last: end(place + 1), body: { ...body, text } }));
}

/** How many of these events make a helping of this size; one at least. */
export function countOf(events, size) {
  let weight = 0;
  let count = 0;
  while (count < events.length && (weight += weightOf(events[count])) <= size) count += 1;
  return Math.max(1, count);
}

// What is no words is a row of its own: as much work as a short paragraph.
const weightOf = ({ body }) => (spoken(body) ? body.text.length : PIECE / 4);
const spoken = ({ kind }) => kind === "text_delta" || kind === "thought_delta";

/** The size of the next helping, after one of this size took so many milliseconds. */
export function sizeAfter(size, ms) {
  if (ms > BUSY) return Math.max(LEAST, size / 2);
  return ms < CALM ? Math.min(MOST, size * 2) : size;
}
