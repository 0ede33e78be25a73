// The official client: both APIs, streamed and not, and what we sent put back as input.

import assert from "node:assert/strict";
import OpenAI from "openai";

const ai = new OpenAI({ maxRetries: 0 });
const first = await ai.responses.create({ model: "scripted", input: "think about tea\ncalc 6*7" });
assert.ok(first._request_id);
const again = await ai.responses.create({
  model: "scripted",
  input: [{ role: "user", content: "hi" }, ...first.output, { role: "user", content: "hello" }],
});
assert.match(again.output_text, /hello/);
const stream = ai.responses.stream({ model: "default", input: "one two" });
assert.equal((await stream.finalResponse()).output_text.trim(), "one two");

const parameters = { type: "object", properties: { city: { type: "string" } } };
const tools = [{ type: "function", name: "weather", parameters, strict: false }];
const asked = await ai.responses.create({ model: "scripted", input: 'tool weather {"city": "Rome"}', tools });
const call = asked.output.find((item) => item.type === "function_call");
const answered = await ai.responses.create({
  model: "scripted",
  previous_response_id: asked.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
});
assert.match(answered.output_text, /sunny/);

const chunks = await ai.chat.completions.create({
  model: "default",
  messages: [{ role: "user", content: "one two" }],
  stream: true,
});
let text = "";
for await (const chunk of chunks) text += chunk.choices[0]?.delta.content ?? "";
assert.equal(text.trim(), "one two");
const run = ai.chat.completions.runTools({
  model: "scripted",
  messages: [{ role: "user", content: 'tool weather {"city": "Rome"}' }],
  tools: [
    {
      type: "function",
      function: { name: "weather", parameters, parse: JSON.parse, function: ({ city }) => `sunny in ${city}` },
    },
  ],
});
assert.match(await run.finalContent(), /sunny in Rome/);
const long = "Tea is picked, withered, rolled and dried before anybody drinks it. ".repeat(8);
const history = [0, 1, 2, 3].map((n) => ({ role: n % 2 ? "assistant" : "user", content: long }));
const compacted = await ai.responses.compact({ model: "default", input: history });
assert.deepEqual(
  compacted.output.map((item) => item.type),
  ["compaction", "message", "message"],
);
const continued = await ai.responses.create({
  model: "default",
  input: [...compacted.output, { role: "user", content: "and then?" }],
});
assert.equal(continued.output_text.trim(), "and then?");
await assert.rejects(ai.responses.create({ model: "nobody", input: "x" }), (error) => {
  assert.ok(error instanceof OpenAI.NotFoundError);
  assert.equal(error.code, "model_not_found");
  return Boolean(error.requestID);
});
