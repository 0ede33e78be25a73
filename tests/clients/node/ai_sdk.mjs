// The AI SDK with @ai-sdk/openai: both APIs, tools, streams, and the second turn that refers to our own items.

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const weather = tool({
  description: "How the weather is.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});

for (const model of [openai.responses("scripted"), openai.chat("scripted")]) {
  const messages = [{ role: "user", content: "think about tea\ncalc 6*7" }];
  const first = await generateText({ model, messages, maxRetries: 0 });
  assert.match(first.text, /42/);
  messages.push(...first.response.messages, { role: "user", content: 'tool weather {"city": "Rome"}' });
  const second = await generateText({ model, messages, tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
  assert.match(second.text, /sunny in Rome/);
  messages.push(...second.response.messages, { role: "user", content: "hello" });
  const third = streamText({ model, messages, tools: { weather }, maxRetries: 0, onError: ({ error }) => { throw error; } });
  let text = "";
  for await (const piece of third.textStream) text += piece;
  assert.match(text, /hello/);
  messages.push(...(await third.response).messages, { role: "user", content: "calc 2+3" });
  assert.match((await generateText({ model, messages, maxRetries: 0 })).text, /5/);
}

const model = openai.responses("scripted");
const kept = await generateText({ model, prompt: "calc 6*7", providerOptions: { openai: { store: false } } });
const followed = await generateText({
  model,
  messages: [{ role: "user", content: "calc 6*7" }, ...kept.response.messages, { role: "user", content: "hello" }],
  providerOptions: { openai: { store: false } },
});
assert.match(followed.text, /hello/);
const chained = await generateText({
  model,
  prompt: "hello",
  providerOptions: { openai: { previousResponseId: (await generateText({ model, prompt: "x" })).response.id } },
});
assert.match(chained.text, /hello/);
const directed = await generateText({
  model: openai.chat("directed"),
  prompt: "x",
  stopSequences: ["zebra"],
  seed: 7,
  presencePenalty: 0.5,
  frequencyPenalty: 0.25,
});
assert.equal(directed.text, "stop zebra seed 7 presence 0.5 frequency 0.25");
