// The theme: that of the system, light or dark; stored in this browser.
import { effect, signal } from "../vendor/page.js";

const KEY = "backstay.theme";
export const theme = signal(storedTheme());

function storedTheme() {
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
    // Without local storage, the theme still applies to this page.
  }
});
