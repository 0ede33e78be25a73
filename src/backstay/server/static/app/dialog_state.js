// The dialog that is open: help, settings, search or tags; at most one.
import { signal } from "../vendor/page.js";

export const openDialog = signal(null);
export const sidebar = signal(false);
