// What a person signs, made of the question that they are shown. Nothing that the server gives to sign is signed: it is
// compared with what is made here, and a difference ends the answer before a key is used.

import { createHash } from "node:crypto";

import type { components } from "./api.js";

export type Question = components["schemas"]["QuestionDocument"];

/** Return the RFC 8785 form of a JSON value: members in the order of their UTF-16 code units, and no blanks. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, item]) => `${JSON.stringify(name)}:${canonical(item)}`).join(",")}}`;
}

/** Return `sha256:` and the hex digest of the canonical form of a value. */
export function contentAddress(value: unknown): string {
  return `sha256:${createHash("sha256").update(canonical(value)).digest("hex")}`;
}

/** Return what is signed of a question, after everything that it says was derived again; throw if a part differs. */
function contentOf(question: Question): Record<string, unknown> {
  const { approval_id, binding, binding_digest, evidence } = question;
  const args = valuesOf(question.args);
  const named = (values: object) => Object.entries(values).map(([name, value]) => ({ name, value }));
  const derived = {
    binding_digest: contentAddress(binding),
    args_digest: contentAddress(args),
    evidence_snapshot_hash: contentAddress(evidence),
    run_id: binding.run_id,
    gate_id: binding.gate_id,
    required_role: binding.required_role,
    deadline_us: binding.deadline_us,
    capability_id: binding.capability_id,
    mode: binding.mode,
    requester: binding.requester_chain.map((one) => `${one.kind}:${one.id}`),
    untrusted: byName(named(binding.untrusted)),
    secrets: byName(named(binding.secrets)),
  };
  const stated = {
    ...question,
    args_digest: binding.args_digest,
    evidence_snapshot_hash: binding.evidence_snapshot_hash,
    untrusted: byName(question.untrusted),
    secrets: byName(question.secrets),
  };
  for (const [name, value] of Object.entries(derived)) {
    if (canonical(stated[name as keyof typeof stated]) !== canonical(value)) {
      throw new Error(`the question of the server is altered: \`${name}\` does not follow; nothing was signed`);
    }
  }
  return { approval_id, binding, binding_digest, args, evidence };
}

type Named = { name: string; value?: unknown };

/** A name that stands twice would show one value and sign another. */
function valuesOf(listed: Named[]): Record<string, unknown> {
  const values = Object.fromEntries(listed.map((one) => [one.name, one.value]));
  if (Object.keys(values).length !== listed.length) {
    throw new Error("the question of the server is altered: a name stands twice; nothing was signed");
  }
  return values;
}

function byName(listed: Named[]): Named[] {
  return [...listed].sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** Return the statement with which `approver` answers a question: the question in clear, and the answer. */
export function approvalStatement(
  question: Question,
  approver: unknown,
  verdict: "approved" | "denied",
  reason: string,
): Record<string, unknown> {
  return { ...contentOf(question), approver, verdict, reason };
}

/** Return the bytes that the key `kid` signs for a statement: header and payload of a compact JWS. */
export function signingInput(kid: string, typ: string, statement: unknown): string {
  const segment = (value: unknown) => Buffer.from(canonical(value)).toString("base64url");
  return `${segment({ alg: "Ed25519", kid, typ })}.${segment(statement)}`;
}
