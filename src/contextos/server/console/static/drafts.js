// The draft of a pack: a text, the findings beside it, and its publication, signed by its author and by its publisher.

import { act, linesOf } from "./acts.js";
import { base64, bytesOf, keyOf, send, sha256, shownText, signature, signs } from "./signing.js";

const IDS = ["rule_id", "bundle_id", "gate_id", "permission_id", "adapter_id", "decision_key", "intent_id", "template_id", "decision_id", "intent", "name", "id"];
const CHECK_AFTER_MS = 1200;

const place = document.querySelector("#draft");
const text = place.querySelector("textarea");
const checked = place.querySelector(".checked");
const findings = place.querySelector(".findings");

function numberLines() {
  const gutter = place.querySelector(".numbered pre");
  gutter.textContent = Array.from(text.value.split("\n"), (_, index) => index + 1).join("\n");
  gutter.scrollTop = text.scrollTop;
}

function goTo(line) {
  const lines = text.value.split("\n");
  const begin = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  text.scrollTop = (text.scrollHeight / lines.length) * Math.max(0, line - 6);
}

// Return a text of the runtime as nodes, with the parts in backticks as code.
const coded = (text) =>
  shownText(text).split("`").map((part, index) => {
    const node = document.createElement(index % 2 ? "code" : "span");
    node.textContent = part;
    return node;
  });

function finding({ pointer, detail, remedy }) {
  const [, line] = /\bline (\d+), column \d+/.exec(detail) ?? [];
  const item = document.createElement("li");
  if (line) {
    const link = document.createElement("a");
    link.href = "#text";
    link.textContent = `${checked.dataset.line} ${line}`;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      goTo(Number(line));
    });
    item.append(link, " ");
  }
  const at = document.createElement("small");
  at.textContent = shownText(pointer);
  item.append(...coded(detail.replace(/^line \d+, column \d+: /, "")), ...(remedy ? ["; ", ...coded(remedy)] : []), " ", at);
  return item;
}

let asked = 0;
async function check() {
  const mine = (asked += 1);
  if (!text.value.trim()) return;
  checked.className = "checked";
  checked.textContent = checked.dataset.waits;
  let found;
  try {
    found = await send("/v1/packs/lint", { document: text.value });
  } catch (error) {
    found = { problems: error.errors?.length ? error.errors : [{ pointer: "", detail: error.message }], more: 0 };
  }
  // A later check tells what is true of the text now.
  if (mine !== asked) return;
  const count = found.problems.length + found.more;
  checked.className = count ? "checked fault" : "checked";
  checked.textContent = count ? `${checked.dataset.found} ${count}` : checked.dataset.clean;
  findings.replaceChildren(...found.problems.map(finding));
  if (found.more) findings.append(finding({ pointer: "", detail: `${found.more} ${checked.dataset.more}` }));
}

let timer;
text.addEventListener("input", () => {
  numberLines();
  clearTimeout(timer);
  timer = setTimeout(check, CHECK_AFTER_MS);
});
text.addEventListener("scroll", () => (place.querySelector(".numbered pre").scrollTop = text.scrollTop));
const button = document.querySelector("#check");
button.hidden = false;
button.addEventListener("click", check);

const begin = document.querySelector("#begin");
if (begin) {
  begin.hidden = false;
  begin.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { name, who, approver, mode } = Object.fromEntries(new FormData(begin));
    try {
      text.value = (await send("/v1/packs/draft", { name, who: who.split(/[\s,]+/).filter((role) => role), approver, mode })).declaration;
    } catch (error) {
      checked.className = "checked fault";
      checked.textContent = error.message;
      return;
    }
    numberLines();
    check();
  });
}

// Yield the fields of a document as `contextos pack diff` names them: an entry of a list by its id, if it has one.
function* fieldsOf(value, at = "") {
  if (value === null || typeof value !== "object" || !Object.keys(value).length) {
    yield [at, JSON.stringify(value)];
    return;
  }
  const isList = Array.isArray(value);
  if (isList && !value.every((one) => one !== null && typeof one === "object" && !Array.isArray(one))) {
    yield [at, JSON.stringify(value)];
    return;
  }
  const nameOf = (one) => one[IDS.find((id) => typeof one[id] === "string")];
  const names = isList ? value.map(nameOf) : Object.keys(value);
  for (const [index, member] of Object.values(value).entries()) {
    const name = names[index];
    const isUnique = !isList || (name && names.filter((other) => other === name).length === 1);
    yield* fieldsOf(member, `${at}/${isUnique ? name : index}`);
  }
}

function changesText(before, after) {
  const [old, now] = [new Map(fieldsOf(before)), new Map(fieldsOf(after))];
  const places = [...new Set([...old.keys(), ...now.keys()])].sort().filter((at) => old.get(at) !== now.get(at));
  return places.map((at) => `${shownText(at)}\n  - ${shownText(old.get(at) ?? "")}\n  + ${shownText(now.get(at) ?? "")}`).join("\n");
}

// Return what DSSE signs for a payload: its type and its bytes, each with its length.
function preAuthentication(type, payload) {
  const head = new TextEncoder().encode(`DSSEv1 ${new TextEncoder().encode(type).length} ${type} ${payload.length} `);
  return Uint8Array.from([...head, ...payload]);
}

function publishing(card) {
  const texts = card.querySelector(".result").dataset;
  const link = card.querySelector(".result-link a");
  let pack;
  const prepare = async (_button, form) => {
    const expansion = await send("/v1/packs/expand", { declaration: text.value });
    const payload = bytesOf(expansion.payload);
    // What is signed is what is shown: the bytes, and not the copy beside them.
    pack = JSON.parse(new TextDecoder().decode(payload));
    const author = await keyOf(form.author.files[0], texts);
    const made = await signature(author.key, preAuthentication(expansion.payload_type, payload));
    const signatures = [{ keyid: author.kid, sig: base64(made) }];
    const envelope = { payloadType: expansion.payload_type, payload: expansion.payload, signatures };
    const also = { digest: `sha256:${await sha256(payload)}`, ref: `${pack.pack_meta.pack_id}@${pack.pack_meta.pack_version}` };
    const shown = await act("/v1/packs", JSON.stringify({ envelope }), card.dataset, texts, also);
    if (!place.dataset.of) return { ...shown, text: `${shown.text}\n\n${card.dataset.whole} ${[...fieldsOf(pack)].length}\n\n${linesOf(pack)}` };
    const { document: base } = await send(`/v1/packs/${encodeURIComponent(place.dataset.of)}`);
    return { ...shown, text: `${shown.text}\n\n${card.dataset.changes} ${place.dataset.of}\n${changesText(base, pack)}` };
  };
  signs(card, prepare, (answer) => {
    const intents = (pack.decision_layer.intents ?? []).map((one) => one.intent_id).join("\n");
    link.href = `/console/do/pins.set?${new URLSearchParams({ refs: answer.ref, intents })}`;
  });
}

const card = document.querySelector("#publish");
if (card) publishing(card);
numberLines();
check();
