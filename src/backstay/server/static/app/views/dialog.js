// A modal dialog: closed by Esc, a click outside, or its button; the focus then returns to where it was.
import { openDialog } from "../dialog_state.js";
import { html, useEffect, useRef } from "../html.js";
import { Icon } from "../icon.js";
import { Notices } from "./notices.js";

export function Dialog({ title, kind = "", children }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
  const close = () => (openDialog.value = null);
  const beside = (event) => event.target === box.current && close();
  return html`<dialog ref=${box} class=${`sheet ${kind}`} aria-label=${title} onCancel=${close} onClose=${close} onClick=${beside}>
    <div class="sheet-inside">
      <header><h2>${title}</h2><button type="button" class="quiet" aria-label="Close" onClick=${close}><${Icon} name="close" /></button></header>
      ${children}
    </div>
    <${Notices} />
  </dialog>`;
}
