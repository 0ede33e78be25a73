// How views are written: htm templates that become Preact nodes. Nothing here, or anywhere, makes HTML from text.
import { h, htm, useRef } from "../vendor/page.js";

export { Fragment, h, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/page.js";
export const html = htm.bind(h);

/** A view that is drawn again only when one of its properties is another value. */
export function steady(View) {
  function Steady(props) {
    this.shouldComponentUpdate = (next) => different(this.props, next);
    return h(View, props);
  }
  return Steady;
}

/** Makes the node of an item, or gives the one it made before if nothing about it is different: such a node is not even
 *  compared with itself when its list is drawn again. */
export function useNodes(View) {
  const made = useRef(null);
  made.current ??= new WeakMap();
  return (item, key, props) => {
    const before = made.current.get(item);
    if (before && before.key === key && !different(before.props, props)) return before;
    const node = h(View, { key, ...props });
    made.current.set(item, node);
    return node;
  };
}

function different(one, other) {
  const names = Object.keys(other);
  return names.length !== Object.keys(one).length || names.some((name) => one[name] !== other[name]);
}
