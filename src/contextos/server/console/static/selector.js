// The context selector: what is picked becomes the answer `userResponse`, which is signed here and sent to /v1.
// The page works without this script: the form is then sent, and the page prints the command with the answer.

import { keyOf, send, shownText, signedWith, statementIn } from "./signing.js";

const form = document.querySelector("#selector");
const place = document.querySelector("#selection");
const [signing, statement, result] = ["form", ".statement", ".result"].map((one) => place.querySelector(one));
const said = form.querySelector(".state");
const inputs = [...form.querySelectorAll("input[name^=pick]")];
const texts = { ...form.dataset, ...result.dataset };
const [least, most] = [Number(texts.least), Number(texts.most)];
let shown;

const picked = () => inputs.filter((input) => input.checked);

// The answer names each artifact by its three ids, in the order in which the agent gets them.
function userResponse() {
  const refs = picked().map((input) => {
    const [artifactId, representationRevisionId, semanticAssertionId] = input.value.split(" ");
    return { artifactId, representationRevisionId, semanticAssertionId };
  });
  return { slotId: texts.slot, resolutionMode: texts.mode, selectedRefs: refs };
}

function emit() {
  const [answer, count] = [userResponse(), picked().length];
  const isFull = texts.mode === "accumulate" && count >= most;
  for (const input of inputs) {
    input.disabled = isFull && !input.checked;
    const at = picked().indexOf(input);
    input.closest("label").querySelector(".place").textContent = at < 0 ? "" : at + 1;
  }
  const tooFew = count < least;
  said.className = "state";
  said.textContent = tooFew ? `${texts.tooFew} ${least}.` : count ? `${count} ${texts.picked}${isFull && inputs.length > count ? `. ${texts.full}` : ""}` : texts.none;
  signing.querySelector("button").disabled = tooFew;
  signing.querySelector("#ready").textContent = tooFew ? `${texts.tooFew} ${least}.` : texts.ready;
  document.querySelector("#userResponse").textContent = JSON.stringify(answer);
  form.dispatchEvent(new CustomEvent("userResponse", { detail: answer, bubbles: true }));
  close();
}

function close() {
  statement.hidden = true;
  signing.hidden = false;
  shown = undefined;
}

function say(text, isFault) {
  result.className = isFault ? "result fault" : "result";
  result.textContent = text;
}

function failed(error) {
  if (error.unknown) say(texts.unknown, true);
  else if (error.status === 409 || error.status === 404) say(texts.changed, true);
  else say(`${error.status === 422 ? texts.refused : texts.failed} ${error.message}`, true);
}

function done() {
  say(texts.sent, false);
  statement.hidden = true;
  signing.hidden = true;
  form.inert = true;
  place.querySelector(".result-link").hidden = false;
  place.querySelector(".result-link a").focus();
}

// What is signed is what was picked: the same slot of the same run, and exactly these artifacts.
function isOf(selection, answer) {
  const ids = (refs) => refs.map((ref) => [ref.artifactId, ref.representationRevisionId, ref.semanticAssertionId].join(" "));
  return selection.slot_id === answer.slotId && JSON.stringify(ids(selection.refs)) === JSON.stringify(ids(answer.selectedRefs));
}

form.addEventListener("change", emit);
form.addEventListener("submit", (event) => event.preventDefault());
form.querySelector("#clear").addEventListener("click", (event) => {
  event.preventDefault();
  for (const input of inputs) input.checked = false;
  emit();
  (inputs[0] ?? event.target).focus();
});
signing.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    if ("unsigned" in texts) {
      await send(texts.path, { answer: userResponse() });
      done();
      return;
    }
    if (!signing.elements.key.files.length) throw new Error(texts.noKey);
    const draft = { answer: userResponse(), at_us: Date.now() * 1000 };
    const { statements } = await send(`${texts.path}/statement`, draft);
    const inputs = statements[0].signing_inputs;
    const signed = statementIn(inputs);
    if (!signed || !isOf(signed.arguments.selection, draft.answer)) throw Object.assign(new Error(""), { status: 409 });
    shown = { draft, inputs };
    statement.querySelector("pre").textContent = JSON.stringify(signed, null, 2).split("\n").map(shownText).join("\n");
    say("", false);
    statement.hidden = false;
    signing.hidden = true;
    statement.querySelector("button").focus();
  } catch (error) {
    failed({ status: error.status, message: error.message, unknown: error.unknown && "unsigned" in texts });
  }
});
for (const button of statement.querySelectorAll("[data-sign]")) {
  button.addEventListener("click", async () => {
    if (!button.dataset.sign) {
      close();
      signing.querySelector("button").focus();
      return;
    }
    try {
      const key = await keyOf(signing.elements.key.files[0], texts);
      const tokens = [await signedWith(key, shown.inputs, texts)];
      await send(texts.path, { ...shown.draft, tokens });
      done();
    } catch (error) {
      failed(error);
      close();
    }
  });
}

form.querySelector(".without-script").hidden = true;
signing.hidden = false;
emit();
