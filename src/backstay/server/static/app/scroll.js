// Scrolling: follows the end while the reader is there, and otherwise keeps the visible text in place.
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";

const NEAR = 48;
const FAR = 600;

const endOf = (box) => box.scrollHeight - box.scrollTop - box.clientHeight;
const bottomIn = (box, turn) => turn.getBoundingClientRect().bottom - box.getBoundingClientRect().top;

/** The first visible turn and the position of its bottom: content that is added above may belong to the same turn. */
function firstVisibleTurn(box) {
  const turn = [...box.querySelectorAll("[data-turn]")].find((one) => bottomIn(box, one) > 0);
  return turn && { turn, bottom: bottomIn(box, turn) };
}

/** The ref of the scrolling element, whether the reader is away from its end, and functions to go there or
 *  stop following it. `nearEnd` is for content that continues below: it loads more, and the view does not follow the end. */
export function useTail(content, topKey, nearTop, nearEnd = null) {
  const box = useRef(null);
  const held = useRef({ atEnd: !nearEnd, top: 0, topKey, seen: null });
  const below = useRef(nearEnd);
  const [away, setAway] = useState(Boolean(nearEnd));
  // Measure now, while the DOM is as the reader sees it: scroll events arrive later than the scrolling.
  if (box.current && held.current.topKey !== topKey) held.current.seen = firstVisibleTurn(box.current);

  // After every render: follow the end, or, if content was added above, keep the visible text in place.
  useLayoutEffect(() => {
    const here = box.current;
    if (!here) return;
    const was = held.current;
    if (was.seen?.turn.isConnected) here.scrollTop += bottomIn(here, was.seen.turn) - was.seen.bottom;
    else if (was.atEnd) here.scrollTop = here.scrollHeight;
    Object.assign(was, { top: here.scrollTop, topKey, seen: null });
    if (below.current && !nearEnd) setAway(!(was.atEnd = endOf(here) <= NEAR));
    below.current = nearEnd;
    if (endOf(here) < FAR) nearEnd?.();
  }, [content, topKey, nearEnd]);

  useEffect(() => {
    const here = box.current;
    if (!here) return undefined;
    const moved = () => {
      const was = held.current;
      const end = endOf(here);
      // Growing content also moves the end away; only the reader scrolls up.
      if (here.scrollTop < was.top - 1 && end > NEAR) was.atEnd = false;
      else if (end <= NEAR) was.atEnd = !below.current;
      was.top = here.scrollTop;
      setAway(!was.atEnd);
      if (here.scrollTop < FAR) nearTop();
      if (end < FAR) below.current?.();
    };
    const grown = new ResizeObserver(() => {
      if (held.current.atEnd) here.scrollTop = here.scrollHeight;
    });
    here.addEventListener("scroll", moved, { passive: true });
    grown.observe(here);
    return () => {
      here.removeEventListener("scroll", moved);
      grown.disconnect();
    };
  }, [nearTop]);

  const toEnd = () => {
    held.current.atEnd = true;
    box.current.scrollTop = box.current.scrollHeight;
    setAway(false);
  };
  const stopFollowing = () => {
    held.current.atEnd = false;
    setAway(true);
  };
  return { box, away, toEnd, stopFollowing };
}
