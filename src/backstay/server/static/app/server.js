// Information about the server: its agents, how they were selected, its limits.
import { signal } from "../vendor/page.js";
import { get } from "./api.js";

export const about = signal(null);

export async function loadAbout() {
  about.value = await get("/api/about");
}

/** The agent that answers by default. */
export function mainAgent() {
  const agents = about.value?.facts.agents ?? [];
  return agents.includes("default") ? "default" : agents[0];
}

/** Whether this agent uses no model. */
export const isScripted = (agent) => Boolean(about.value?.facts.scripted.includes(agent));
