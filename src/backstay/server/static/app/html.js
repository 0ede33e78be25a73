// How views are written: htm templates that become Preact nodes. Nothing here, or anywhere, makes HTML from text.
import { h, htm } from "../vendor/page.js";

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

function different(one, other) {
  const names = Object.keys(other);
  return names.length !== Object.keys(one).length || names.some((name) => one[name] !== other[name]);
}
