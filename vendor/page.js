// What the page uses of others' work, in one file: `make vendor`.
export { Fragment, h, render } from "preact";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked } from "@preact/signals";
export { default as htm } from "htm";
export { default as MarkdownIt } from "markdown-it";
