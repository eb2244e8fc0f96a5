// Ask for a refund, have a finance lead approve it, and follow the run to its end.
//
// `node dist/refund.js REQUEST.json LEAD.key`, with CONTEXTOS_URL, REQUESTER_TOKEN and LEAD_TOKEN set.

import { createHash, createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import { readFileSync } from "node:fs";

import { answer, connect, follow, found } from "./client.js";
import type { components } from "./api.js";

/** Read a key file of a development workspace: a raw Ed25519 private key of 32 bytes, as hex. */
function readKey(path: string): { kid: string; key: KeyObject } {
  const prefix = Buffer.from("302e020100300506032b657004220420", "hex"); // PKCS#8 of Ed25519
  const der = Buffer.concat([prefix, Buffer.from(readFileSync(path, "utf8").trim(), "hex")]);
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const { x } = createPublicKey(key).export({ format: "jwk" });
  const digest = createHash("sha256").update(Buffer.from(x ?? "", "base64url")).digest("hex");
  return { kid: `kid_${digest.slice(0, 16)}`, key };
}

function setting(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

const [requestFile = "", keyFile = ""] = process.argv.slice(2);
const requester = connect(setting("CONTEXTOS_URL"), () => setting("REQUESTER_TOKEN"));
const lead = connect(setting("CONTEXTOS_URL"), () => setting("LEAD_TOKEN"));

const body = JSON.parse(readFileSync(requestFile, "utf8")) as components["schemas"]["InvokeRequest"];
const sent = await found(requester.POST("/v1/runs", { body }));
console.log(sent.state, sent.waits_for);

const seen: string[] = [];
for await (const event of follow(requester, sent.run_id)) {
  seen.push(event.id);
  if (event.document["name"] === "contextos.approval.asked") {
    const path = { run: sent.run_id };
    const question = await found(lead.GET("/v1/approvals/{run}", { params: { path } }));
    const { kid, key } = readKey(keyFile);
    await answer(lead, question, "approved", "checked the order", kid, key);
  }
}

const record = await found(requester.GET("/v1/runs/{run}/record", { params: { path: { run: sent.run_id } } }));
console.log(record.status, record.outcome, record.approvals[0]?.approver);
console.log(seen.length, new Set(seen).size);
