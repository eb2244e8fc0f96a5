// Signs what a person was shown, with a key of a file or with a passkey, and sends it to /v1.
// A private key is read on this page alone and never sent.

const PKCS8_ED25519 = "302e020100300506032b657004220420";
const HIDDEN = /[\\\p{C}\p{M}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1d159}]|(?! )\p{Zs}/gu;

export const base64 = (bytes) => btoa(Array.from(new Uint8Array(bytes), (one) => String.fromCharCode(one)).join(""));
export const base64url = (bytes) => base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
export const bytesOf = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const hexBytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
const hexOf = (bytes) => Array.from(new Uint8Array(bytes), (one) => one.toString(16).padStart(2, "0")).join("");

export const sha256 = async (bytes) => hexOf(await crypto.subtle.digest("SHA-256", bytes));
export const signature = (key, bytes) => crypto.subtle.sign("Ed25519", key, bytes);

// Return a text as the pages of the server show it: what a reader does not see, or what moves others, is written out.
export function shownText(text) {
  const short = { "\\": "\\\\", "\n": "\\n", "\t": "\\t" };
  return text.replace(HIDDEN, (one) => {
    const code = one.codePointAt(0);
    return short[one] ?? (code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
  });
}

// Return the JSON of a value in the one form that a digest covers (RFC 8785).
export function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

// Return the statement in the bytes that a key signs. These bytes are the same for each key but in their header.
export function statementIn(inputs) {
  const payloads = new Set(Object.values(inputs).map((input) => input.split(".")[1]));
  if (payloads.size !== 1) return null;
  const text = new TextDecoder().decode(bytesOf([...payloads][0]));
  const statement = JSON.parse(text);
  return canonical(statement) === text ? statement : null;
}

// Send a request, and return its answer: JSON, or a file. `body` is a value, or JSON as text. An error has the status of
// the answer; without one, nobody knows what became of the request.
export async function send(path, body) {
  const csrf = document.querySelector("main").dataset.csrf;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  const text = typeof body === "string" ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, body === undefined ? {} : { method: "POST", headers, body: text });
  } catch {
    throw Object.assign(new Error(""), { unknown: body !== undefined });
  }
  if (answer.ok && !/json(;|$)/.test(answer.headers.get("Content-Type"))) return answer.blob();
  const said = await answer.json();
  if (answer.ok) return said;
  const parts = (said.errors ?? []).filter((one) => !said.detail.includes(one.detail));
  const detail = shownText([said.detail, ...parts.map((one) => `${one.pointer} ${one.detail}${one.remedy ? `; ${one.remedy}` : ""}`)].join(" · "));
  throw Object.assign(new Error(detail), { status: answer.status, unknown: answer.status >= 500, errors: said.errors ?? [] });
}

// Return a private key with its id: `kid_` and the first 16 hex digits of the SHA-256 of the public key.
export async function keyOf(file, texts) {
  const hex = (await file.text()).trim();
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw new Error(texts.badKey);
  const key = await crypto.subtle.importKey("pkcs8", hexBytes(PKCS8_ED25519 + hex), "Ed25519", true, ["sign"]);
  const { x } = await crypto.subtle.exportKey("jwk", key);
  return { key, kid: `kid_${(await sha256(bytesOf(x))).slice(0, 16)}` };
}

export async function signedWith({ key, kid }, inputs, texts) {
  if (!(kid in inputs)) throw new Error(texts.otherKey);
  return `${inputs[kid]}.${base64url(await signature(key, new TextEncoder().encode(inputs[kid])))}`;
}

async function proofOf(kind, form, shown, texts) {
  if (kind === "passkey") {
    const options = PublicKeyCredential.parseRequestOptionsFromJSON(shown.passkey);
    return { passkey: (await navigator.credentials.get({ publicKey: options })).toJSON() };
  }
  if (!shown.inputs.length) return { tokens: [] };
  const key = await keyOf(form.key.files[0], texts);
  return { tokens: await Promise.all(shown.inputs.map((inputs) => signedWith(key, inputs, texts))) };
}

// The one way to sign: a form whose buttons ask for a statement, the statement in clear, and what became of it.
// `prepare(button, form)` returns the `text` of what is signed, its `inputs` by key id (one object a statement), the
// options of a `passkey` if one can sign it, and `finish(proof)`, which sends it. `done` gets the answer.
export function signs(place, prepare, done = () => {}) {
  const [form, statement, result] = ["form", ".statement", ".result"].map((one) => place.querySelector(one));
  const texts = result.dataset;
  let shown;
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());

  const say = (text, isFault) => {
    result.className = isFault ? "result fault" : "result";
    result.textContent = text;
  };
  const failed = (error) => {
    if (error.unknown) say(texts.unknown, true);
    else if (error.status === 409 || error.status === 404) say(`${texts.changed} ${error.message}`, true);
    else say(`${texts.failed} ${error.message}`, true);
  };
  const asks = (isAsking) => {
    statement.hidden = !isAsking;
    form.hidden = isAsking;
  };
  for (const button of form.querySelectorAll("[data-asks]")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        if (!form.reportValidity()) return;
        shown = await prepare(button, form);
        if (!form.key.files.length && !shown.passkey && shown.inputs.length) throw new Error(texts.noKey);
        statement.querySelector("pre").textContent = shown.text;
        statement.querySelector('[data-sign="key"]').hidden = !form.key.files.length && shown.inputs.length > 0;
        statement.querySelector('[data-sign="passkey"]').hidden = !shown.passkey;
        say("", false);
        asks(true);
        statement.querySelector("button:not([hidden])").focus();
      } catch (error) {
        failed(Object.assign(error, { unknown: false }));
      } finally {
        button.disabled = false;
      }
    });
  }
  for (const button of statement.querySelectorAll("[data-sign]")) {
    button.addEventListener("click", async () => {
      if (!button.dataset.sign) return asks(false);
      button.disabled = true;
      try {
        const proof = await proofOf(button.dataset.sign, form, shown, texts);
        const answer = await shown.finish(proof);
        say(texts.sent, false);
        statement.hidden = true;
        done(answer);
        const link = place.querySelector(".result-link");
        link.hidden = false;
        link.querySelector("a").focus();
      } catch (error) {
        failed(error);
      } finally {
        button.disabled = false;
      }
    });
  }
}
