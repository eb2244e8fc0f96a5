// The forms of governed operations: what was filled in becomes a body, and what is shown is what is signed.

import { canonical, send, sha256, shownText, signs, statementIn } from "./signing.js";

const WIDEST_NAME = 24;
// The arguments by which acts name the thing that they are about, by its name in the address.
const NAMES_OF = { run: ["run", "run_id"], ref: ["ref", "profile"], proposal: ["proposal_id"], capability: ["capability_id"] };
// What acts on facts state by digest.
const DIGESTED = ["nodes", "edges"];
const utf8 = (text) => new TextEncoder().encode(text);
const isNested = (value) => value !== null && typeof value === "object" && Object.keys(value).length > 0;

const digest = async (value) => `sha256:${await sha256(utf8(canonical(value)))}`;

// Return a value without the order of its lists and what stands in them twice: an act keeps a list as a set.
function unordered(value) {
  if (Array.isArray(value)) return `[${[...new Set(value.map(unordered))].sort().join(",")}]`;
  if (!isNested(value)) return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${unordered(value[name])}`).join(",")}}`;
}

// Return what an act states of a field, in the form of the field: an export states the head of each run that was named,
// and policies are pairs.
function inFormOf(sent, said) {
  if (!Array.isArray(sent)) return said;
  if (!Array.isArray(said)) return Object.keys(said);
  return said.map((one) => (Array.isArray(one) ? { level: one[0], ref: one[1] } : one));
}

function* leaves(value, name) {
  if (!isNested(value)) yield [name, typeof value === "string" ? value : JSON.stringify(value)];
  else for (const [member, one] of Object.entries(value)) yield* leaves(one, name ? `${name}.${member}` : member);
}

// Return a value as lines: no value can look like two of them. A long name has its value below it.
export function linesOf(value) {
  const lines = [...leaves(value, "")].map(([name, text]) => [shownText(name), shownText(text)]);
  const width = Math.max(0, ...lines.map(([name]) => name.length).filter((length) => length <= WIDEST_NAME));
  return lines.map(([name, text]) => (name.length > width ? `${name}\n    ${text}` : `${name.padEnd(width)}  ${text}`)).join("\n");
}

// Return a statement as lines, who does what in which tenant first.
const statementText = ({ kind, actor, tenant_id, ...rest }) => linesOf({ ...(kind && { kind, actor }), tenant_id, ...rest });

// Return what in the statements is not what the person filled in, or "".
async function difference(statements, body, place, also) {
  for (const statement of statements) {
    if (statement === null) return "signing_inputs";
    if (statement.tenant_id !== place.tenant) return "tenant_id";
    if ((statement.actor ?? statement.by) !== place.actor) return "actor";
    const said = statement.arguments ?? statement;
    for (const name of NAMES_OF[place.about] ?? []) if (name in said && said[name] !== place.of) return name;
    for (const name in also) if (said[name] !== also[name]) return name;
    if ("nodes" in said && said.nodes !== (await digest(body.nodes))) return "nodes";
    for (const name in body) if (name in said && !DIGESTED.includes(name) && unordered(inFormOf(body[name], said[name])) !== unordered(body[name])) return name;
    if ("expected" in body && statement.expected !== body.expected) return "expected";
    if (statement.kind === "graph.written" && "value" in body) {
      const edge = { src: body.subject, dst: body.subject, predicate: body.predicate, value: body.value, evidence_ref: body.source };
      Object.assign(edge, { observed_at: body.observed_at_us, integrity: body.integrity, classification: body.classification });
      for (const [id, said_digest] of Object.entries(said.edges)) if ((await digest({ ...edge, edge_id: id })) !== said_digest) return "value";
    }
  }
  return "";
}

// Return the body of a form as JSON text. What the person wrote as JSON is sent as they wrote it, so no number is rounded.
function bodyOf(form, fixed) {
  const parts = [];
  for (const field of form.querySelectorAll("[data-kind]")) {
    const { kind } = field.dataset;
    const name = field.name ?? field.dataset.name;
    const text = field.value ?? "";
    let json = JSON.stringify(text);
    if (kind === "now") json = fixed;
    else if (kind === "time") json = text ? String(Date.parse(text) * 1000) : fixed;
    else if (!text.trim()) continue;
    else if (kind === "version") json = text;
    else if (kind === "lines") json = JSON.stringify(text.split("\n").map((line) => line.trim()).filter((line) => line));
    else if (kind === "json") {
      json = text;
      try {
        JSON.parse(text);
      } catch (error) {
        throw new Error(`${name}: ${error.message}`);
      }
    }
    parts.push(`${JSON.stringify(name)}:${json}`);
  }
  return `{${parts.join(",")}}`;
}

// Throw unless the page, read again, shows the thing as it is shown here. If the form names another thing now than the
// address of the page does, that thing is shown from here on.
async function checkUnchanged(place, form) {
  const address = new URL(location.href);
  for (const name of place.dataset.depends.split(" ").filter((one) => one)) address.searchParams.set(name, form[name].value);
  const answer = await fetch(address);
  const again = new DOMParser().parseFromString(await answer.text(), "text/html");
  const seen = again.querySelector("#act")?.dataset.seen;
  const isSame = address.search === (place.dataset.shown ?? new URL(location.href).search);
  if (!answer.ok || !seen || (isSame && seen !== place.dataset.seen)) throw Object.assign(new Error(""), { status: 409 });
  if (isSame) return;
  document.querySelector(".about")?.remove();
  const about = again.querySelector(".about");
  if (about) place.before(about);
  place.parentElement.className = about ? "columns" : "";
  Object.assign(place.dataset, { seen, shown: address.search });
}

// Return what a person signs to send `body` to `path`, as `signs` takes it. Throws if it is not what they filled in, or
// states other arguments than those in `also`.
export async function act(path, body, place, texts, also = {}) {
  const { statements } = await send(`${path}/statement`, body);
  const inputs = statements.map((one) => one.signing_inputs);
  if (inputs.some((one) => !Object.keys(one).length)) throw new Error(texts.otherKey);
  const stated = inputs.map(statementIn);
  const name = await difference(stated, JSON.parse(body), place, also);
  if (name) throw new Error(`${texts.differs} ${name}`);
  const text = stated.map(statementText).join("\n\n") || texts.nothing;
  return { text, stated, inputs, finish: (proof) => send(path, `${body.slice(0, -1)}${body === "{}" ? "" : ","}${JSON.stringify(proof).slice(1)}`) };
}

function forms() {
  const place = document.querySelector("#act");
  if (!place) return;
  const texts = place.querySelector(".result").dataset;
  place.querySelector("[data-asks]").hidden = false;
  const prepare = async (_button, form) => {
    await checkUnchanged(place, form);
    const body = bodyOf(form, String(Date.now() * 1000));
    const shown = await act(place.dataset.path, body, place.dataset, texts);
    // A digest hides what it covers, so what is sent and not stated in clear stands beside it.
    const isClear = (name) => shown.stated.some((one) => name in one || (name in (one.arguments ?? {}) && !DIGESTED.includes(name)));
    const covered = Object.entries(JSON.parse(body)).filter(([name]) => !isClear(name));
    return covered.length && shown.stated.length ? { ...shown, text: `${shown.text}\n\n${texts.covers}\n${linesOf(Object.fromEntries(covered))}` } : shown;
  };
  signs(place, prepare, (answer) => {
    const said = place.querySelector(".answered");
    said.hidden = false;
    if (!(answer instanceof Blob)) {
      said.textContent = linesOf(answer);
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(answer);
    link.download = link.textContent = "export.jsonl";
    said.replaceChildren(link);
  });
}

forms();
