// What a JavaScript program sees through the `openai` package: one JSON object on standard output. Arguments: base URL, key.
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Hi" }];
const bytes = (text) => [...Buffer.from(text)];
const says = (...steps) => ({ model: "m", messages, vllm_xargs: { script: steps } });
const seen = {};

const rows = [[[72, -0.25, 1], [73, -1.5, 2]]];
const whole = await client.chat.completions.create({ ...says({ ids: [72], rows, finish: "stop" }), logprobs: true, top_logprobs: 2 });
seen.content = whole.choices[0].message.content;
seen.usage = whole.usage.completion_tokens;
seen.candidates = whole.choices[0].logprobs.content[0].top_logprobs.map((top) => [top.token, top.logprob]);

seen.streamed = "";
const steps = [...bytes("Hé😀"), 258].map((id) => ({ ids: [id] }));
const stream = await client.chat.completions.create({ ...says(...steps), stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  seen.streamed += chunk.choices[0]?.delta?.content ?? "";
  seen.streamedUsage = chunk.usage?.completion_tokens ?? null;
}

const helper = client.chat.completions.stream(says(...steps));
seen.assembled = await helper.finalContent();

const text = await client.completions.create({ model: "m", prompt: "Hi", vllm_xargs: { script: [{ ids: bytes("yes"), finish: "stop" }] } });
seen.text = text.choices[0].text;

seen.models = (await client.models.list()).data.map((model) => model.id);
seen.model = (await client.models.retrieve("m")).id;

async function failure(work) {
  try {
    await work();
    return "nothing failed";
  } catch (error) {
    return [error.constructor.name, error.status ?? null, error.param ?? null, error.code ?? null];
  }
}

const stranger = new OpenAI({ baseURL, apiKey: "sk-x", maxRetries: 0 });
seen.errors = {
  badRequest: await failure(() => client.chat.completions.create({ ...says(), temperature: 9 })),
  notFound: await failure(() => client.chat.completions.create({ ...says(), model: "nope" })),
  unauthorized: await failure(() => stranger.models.list()),
  inStream: await failure(async () => {
    const broken = await client.chat.completions.create({ ...says({ ids: [72] }, { ids: [], finish: "error", wait_ms: 50 }), stream: true });
    for await (const chunk of broken) void chunk;
  }),
};

const leaving = await client.chat.completions.create({ ...says(...Array(300).fill({ ids: [97], wait_ms: 20 })), stream: true });
for await (const chunk of leaving) {
  if (chunk.choices[0]?.delta?.content) break; // leaving the loop aborts the request
}
seen.left = true;
console.log(JSON.stringify(seen));
