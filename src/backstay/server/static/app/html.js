// Templates: htm creates Preact nodes. Nothing in the application creates HTML from text.
import { h, htm, useRef } from "../vendor/page.js";

export { Fragment, h, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/page.js";
export const html = htm.bind(h);

/** A component that renders again only when one of its properties changes. */
export function steady(View) {
  function Steady(props) {
    this.shouldComponentUpdate = (next) => different(this.props, next);
    return h(View, props);
  }
  return Steady;
}

/** Creates the node of an item, or returns its previous node if no property changed. Preact does not even diff a node
 *  that is identical to the previous one. */
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
