// The theme: as the system says, or light, or dark; remembered by this browser.
import { effect, signal } from "../vendor/page.js";

const KEY = "backstay.theme";
export const theme = signal(remembered());

function remembered() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system";
  }
}

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem(KEY, theme.value);
  } catch {
    // A browser that remembers nothing still shows the theme.
  }
});
