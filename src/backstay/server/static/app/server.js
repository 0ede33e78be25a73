// What is known of the server: who answers and why, and what it allows.
import { signal } from "../vendor/page.js";
import { get } from "./api.js";

export const about = signal(null);

export async function learn() {
  about.value = await get("/api/about");
}

/** Who answers when nobody else is asked. */
export function mainAgent() {
  const agents = about.value?.facts.agents ?? [];
  return agents.includes("default") ? "default" : agents[0];
}

/** Whether no model answers under this name. */
export const isScripted = (agent) => Boolean(about.value?.facts.scripted.includes(agent));
