// The sheet that lies over the page: help, settings, search, tags; one at a time, or none.
import { signal } from "../vendor/page.js";

export const sheet = signal(null);
export const sidebar = signal(false);
