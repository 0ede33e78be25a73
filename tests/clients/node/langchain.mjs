// LangChain: both APIs, tools, and the second turn that puts our own output back as input.

import assert from "node:assert/strict";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const weather = tool(({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "How the weather is.",
  schema: z.object({ city: z.string() }),
});

for (const choices of [
  { useResponsesApi: false },
  { useResponsesApi: true },
  { useResponsesApi: true, outputVersion: "v1" },
  { useResponsesApi: true, zdrEnabled: true },
]) {
  const configuration = { baseURL: process.env.OPENAI_BASE_URL };
  const model = new ChatOpenAI({ model: "scripted", maxRetries: 0, configuration, ...choices });
  const messages = [new HumanMessage("think about tea\ncalc 6*7")];
  messages.push(await model.invoke(messages), new HumanMessage('tool weather {"city": "Rome"}'));
  const called = await model.bindTools([weather]).invoke(messages);
  const [call] = called.tool_calls;
  assert.deepEqual(call.args, { city: "Rome" });
  messages.push(called, new ToolMessage({ content: await weather.invoke(call.args), tool_call_id: call.id }));
  const answered = await model.bindTools([weather]).invoke(messages);
  assert.match(answered.text, /sunny in Rome/);
  messages.push(answered, new HumanMessage("hello"));
  let whole;
  for await (const chunk of await model.stream(messages)) whole = whole ? whole.concat(chunk) : chunk;
  assert.match(whole.text, /hello/);
  messages.push(whole, new HumanMessage("calc 2+3"));
  assert.match((await model.invoke(messages)).text, /5/);
}
