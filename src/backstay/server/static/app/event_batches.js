// Batches of events for one animation frame, so that the web UI stays responsive however fast an answer arrives and
// however many events were missed.

const PIECE_LENGTH = 256;
const SMALLEST = PIECE_LENGTH;
const LARGEST = 16 * PIECE_LENGTH;
// A frame has 16 ms, of which layout and paint need a part.
const FAST_MS = 4;
const SLOW_MS = 8;

/** Split an event into pieces that render quickly. The pieces of a long text are numbered in fractions of the event's
 *  number, each one more than the end of the previous piece. So the reducer detects a missing piece like an event. */
export function piecesOf(event) {
  const { body } = event;
  if (!isText(body) || body.text.length <= PIECE_LENGTH) return [event];
  const texts = body.text.match(/[^]{1,256}/gu);
  const end = (pieces) => event.number - 1 + pieces / texts.length;
  return texts.map((text, place) => ({ ...event, number: end(place) + 1, last: end(place + 1), body: { ...body, text } }));
}

/** How many of these events fit into a batch of this size; at least one. */
export function countOf(events, size) {
  let weight = 0;
  let count = 0;
  while (count < events.length && (weight += weightOf(events[count])) <= size) count += 1;
  return Math.max(1, count);
}

// Other events are a row of their own, which costs as much as a short paragraph.
const weightOf = ({ body }) => (isText(body) ? body.text.length : PIECE_LENGTH / 4);
const isText = ({ kind }) => kind === "text_delta" || kind === "thought_delta";

/** The size of the next batch, after one of this size took `ms` milliseconds. */
export function sizeAfter(size, ms) {
  if (ms > SLOW_MS) return Math.max(SMALLEST, size / 2);
  return ms < FAST_MS ? Math.min(LARGEST, size * 2) : size;
}
