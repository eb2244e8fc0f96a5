// Loaded into the conformance suite before it runs, for what the suite cannot say to our server: a bearer token with
// every request, and the names of tools, which begin with the id of their adapter. A call that comes while another one
// waits for a person is made again, as its answer says.
import { channel } from "node:diagnostics_channel";
import http from "node:http";

const PREFIX = "suite__";
const MAX_AGAIN = 300;
const AGAIN_MS = 50;
const authorization = `Bearer ${process.env.FACE_TOKEN}`;

channel("undici:request:create").subscribe(({ request }) => request.addHeader("authorization", authorization));

const { request } = http;
http.request = (options, ...rest) =>
  request({ ...options, headers: { ...options.headers, authorization } }, ...rest);

const { fetch } = globalThis;
globalThis.fetch = async (url, options = {}) => {
  const headers = new Headers(options.headers);
  let { body } = options;
  const message = typeof body === "string" ? JSON.parse(body) : {};
  const isCall = message.method === "tools/call";
  if (isCall) {
    const { name } = message.params;
    body = JSON.stringify({ ...message, params: { ...message.params, name: PREFIX + name } });
    if (headers.get("mcp-name") === name) headers.set("mcp-name", PREFIX + name);
  }
  for (let again = 0; ; again++) {
    const answer = await fetch(url, { ...options, headers, body });
    if (!answer.headers.get("content-type")?.startsWith("application/json")) return answer;
    const { status, headers: answered } = answer;
    const text = (await answer.text()).replaceAll(PREFIX, "");
    if (!isCall || again === MAX_AGAIN || JSON.parse(text).result?.structuredContent?.this_call !== false)
      return new Response(text, { status, headers: answered });
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
};
