// A typed client of the HTTP API of ContextOS. `api.d.ts` is generated from the OpenAPI document of the server:
// `curl $CONTEXTOS_URL/v1/openapi.json > openapi.json && npm run generate`.

import { sign, type KeyObject } from "node:crypto";

import { EventSourceParserStream } from "eventsource-parser/stream";
import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./api.js";
import { approvalStatement, canonical, signingInput, type Question } from "./statements.js";

export type { Question } from "./statements.js";

/** A document is JSON. The stream of a run is read by `follow`. */
type Documents = "application/json" | "application/problem+json";

export type Api = Client<paths, Documents>;
export type Problem = components["schemas"]["ProblemDocument"];
export type RunEvent = { id: string; type: string; document: Record<string, unknown> };

/** An error of the API: its problem document (RFC 9457). */
export class ApiError extends Error {
  constructor(readonly problem: Problem, readonly retryAfterS: number) {
    super(`${problem.code}: ${problem.detail}`);
  }
}

/** Return a client of the API at `url` that sends `token()` with each request and follows no redirect. */
export function connect(url: string, token: () => string | Promise<string>): Api {
  const api = createClient<paths, Documents>({ baseUrl: url, redirect: "error" });
  api.use({
    async onRequest({ request }) {
      request.headers.set("Authorization", `Bearer ${await token()}`);
      return request;
    },
  });
  return api;
}

/** Return the seconds of `Retry-After`, a day at most; 0 without it. A date, which the API does not send, is a second. */
function retryAfterS(response: Response): number {
  const stated = Number(response.headers.get("Retry-After") ?? 0);
  return Number.isNaN(stated) ? 1 : Math.min(Math.max(stated, 0), 86_400);
}

/** Return the document of an answer, or throw `ApiError`. */
export async function found<T>(asked: Promise<{ data?: T; error?: Problem; response: Response }>): Promise<T> {
  const { data, error, response } = await asked;
  if (error !== undefined) throw new ApiError(error, retryAfterS(response));
  if (data === undefined) throw new Error(`the server answered with ${response.status} and no document`);
  return data;
}

/** Yield the events of a run in order until it has ended. A connection that is lost is opened again behind the last. */
export async function* follow(api: Api, run: string, after = ""): AsyncGenerator<RunEvent> {
  for (let failed = 0; failed < 5; failed++) {
    let told = 0;
    try {
      const headers = after ? { "last-event-id": after } : {};
      const { error, response } = await api.GET("/v1/runs/{run}/events", {
        params: { path: { run }, header: headers },
        parseAs: "stream",
      });
      if (error !== undefined && response.status < 500 && response.status !== 429) throw new ApiError(error, 0);
      told = retryAfterS(response);
      if (response.status === 204) return;
      if (response.ok && response.body) {
        failed = 0;
        const events = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
        for await (const event of events) {
          if (event.id === undefined) throw new Error("the stream has an event without an id");
          after = event.id;
          yield { id: event.id, type: event.event ?? "", document: JSON.parse(event.data) as Record<string, unknown> };
        }
      }
    } catch (error) {
      // What `fetch` throws when a connection is lost.
      if (!(error instanceof TypeError)) throw error;
    }
    await new Promise((resume) => setTimeout(resume, Math.max(250 * 2 ** failed, told * 1_000)));
  }
  throw new Error("the server did not answer five times in a row");
}

/** Answer a question that a person has read, signed with their Ed25519 key `kid`.
 *
 * What is signed is made of `question`. `approver` is whose key it is; left out, the server says it, and refuses another.
 * Nothing is signed in another tenant than `tenant`, if it is stated.
 */
export async function answer(
  api: Api,
  question: Question,
  verdict: "approved" | "denied",
  reason: string,
  kid: string,
  key: KeyObject,
  approver?: string,
  tenant?: string,
): Promise<components["schemas"]["AnswerReceipt"]> {
  const path = { run: question.run_id };
  approvalStatement(question, approver, verdict, reason); // an altered question is not even asked about
  if (tenant !== undefined && question.binding.tenant_id !== tenant) {
    throw new Error("the question of the server is of another tenant; nothing was signed");
  }
  if (verdict === "approved" && question.void !== "") {
    throw new Error("the question is void; have it asked again; nothing was signed");
  }
  const said = await found(api.POST("/v1/approvals/{run}/statement", { params: { path }, body: { verdict, reason } }));
  const [given, ...more] = said.statements;
  if (given === undefined || more.length > 0) throw new Error("the server gave not one statement; nothing was signed");
  const statement = approvalStatement(question, approver ?? given.statement["approver"], verdict, reason);
  const input = signingInput(kid, "contextos-approval+jws", statement);
  if (given.signing_inputs[kid] === undefined) throw new Error(`the directory does not list the key ${kid}`);
  // Whoever signs what a server gives to sign, signs what they do not know.
  if (canonical(given.statement) !== canonical(statement) || given.signing_inputs[kid] !== input) {
    throw new Error("the server gave something else to sign; nothing was signed");
  }
  const tokens = [`${input}.${sign(null, Buffer.from(input), key).toString("base64url")}`];
  return found(api.POST("/v1/approvals/{run}/answer", { params: { path }, body: { verdict, reason, tokens } }));
}
