// What the pages of the console do beyond reading: times in the reader's zone, deadlines, the theme, keys, and answers.
// An answer is signed here and sent to /v1. A private key is read on this page alone and never sent.

const PKCS8_ED25519 = "302e020100300506032b657004220420";
const DAY_MS = 86_400_000;

const within = (root, selector) => [...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];

function showTimes(root) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  for (const time of within(root, "time[datetime]")) time.textContent = format.format(new Date(time.dateTime));
}

function left(ms) {
  if (ms <= 0) return "expired";
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s left`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s left`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min left` : `${Math.floor(s / 86400)} d left`;
}

function tick() {
  for (const place of document.querySelectorAll("[data-deadline]")) {
    const ms = Number(place.dataset.deadline) / 1000 - Date.now();
    let said = place.querySelector(".left");
    if (!said) {
      said = document.createElement("span");
      said.className = "left";
      place.append(" ", said);
    }
    said.textContent = `(${left(ms)})`;
    place.classList.toggle("soon", ms < DAY_MS / 24);
  }
}

function themes() {
  const button = document.querySelector("#theme");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // It counts for this page alone.
    }
  });
}

function keys() {
  const sections = { i: "/console/inbox", r: "/console/runs", g: "/console/sections/govern", o: "/console/sections/operate" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const links = [...document.querySelectorAll("main .cover, main tbody th a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "j" || event.key === "k") links.at(event.key === "j" ? (at + 1) % links.length : at - 1)?.focus();
    else if (event.key === "/") document.querySelector(".filters input")?.focus();
    else if (sections[event.key]) location.assign(sections[event.key]);
    else return;
    event.preventDefault();
  });
}

const base64url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const hexBytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));

// Send a request, and return its answer. An error has the status of the answer; without one, nobody knows what became
// of the request.
export async function send(path, body) {
  const csrf = document.querySelector("main").dataset.csrf;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  const sent = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, sent);
  } catch {
    throw Object.assign(new Error(""), { unknown: body !== undefined });
  }
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.errors?.[0]?.detail ?? said.detail), { status: answer.status, unknown: answer.status >= 500 });
  return said;
}

// Return a private key with its id: `kid_` and the first 16 hex digits of the SHA-256 of the public key.
export async function keyOf(file, texts) {
  const hex = (await file.text()).trim();
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw new Error(texts.badKey);
  const key = await crypto.subtle.importKey("pkcs8", hexBytes(PKCS8_ED25519 + hex), "Ed25519", true, ["sign"]);
  const { x } = await crypto.subtle.exportKey("jwk", key);
  const raw = Uint8Array.from(atob(x.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  const hash = [...new Uint8Array(await crypto.subtle.digest("SHA-256", raw))];
  return { key, kid: `kid_${hash.map((one) => one.toString(16).padStart(2, "0")).join("").slice(0, 16)}` };
}

export async function signedWith({ key, kid }, inputs, texts) {
  if (!(kid in inputs)) throw new Error(texts.otherKey);
  const signature = await crypto.subtle.sign("Ed25519", key, new TextEncoder().encode(inputs[kid]));
  return `${inputs[kid]}.${base64url(signature)}`;
}

function answers() {
  const place = document.querySelector("#answer");
  if (!place) return;
  const [form, statement, result] = [".answer form", ".statement", ".result"].map((one) => document.querySelector(one));
  const path = `/v1/approvals/${place.dataset.run}`;
  const texts = result.dataset;
  let draft, shown;
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());

  const say = (text, isFault) => {
    result.className = isFault ? "result fault" : "result";
    result.textContent = text;
  };
  const failed = (error) => {
    if (error.unknown) say(texts.unknown, true);
    else if (error.status === 409 || error.status === 404) say(texts.changed, true);
    else say(`${texts.failed} ${error.message}`, true);
  };
  const changed = () => Object.assign(new Error(""), { status: 409 });
  for (const button of form.querySelectorAll("[data-verdict]")) {
    button.addEventListener("click", async () => {
      try {
        const question = await send(path);
        draft = { verdict: button.dataset.verdict, reason: form.reason.value };
        if (question.void && draft.verdict === "approved") throw changed();
        shown = await send(`${path}/statement`, draft);
        // What is signed is the question of this page, and not the next one of the run.
        if (shown.statements[0].statement.binding_digest !== place.dataset.binding) throw changed();
        const hasPasskey = location.origin in shown.passkeys;
        if (!form.key.files.length && !hasPasskey) throw new Error(texts.noKey);
        statement.querySelector("pre").textContent = shown.text;
        statement.querySelector('[data-sign="key"]').hidden = !form.key.files.length;
        statement.querySelector('[data-sign="passkey"]').hidden = !hasPasskey;
        say("", false);
        statement.hidden = false;
        form.hidden = true;
        statement.querySelector("button:not([hidden])").focus();
      } catch (error) {
        failed({ ...error, message: error.message, unknown: false });
      }
    });
  }
  for (const button of statement.querySelectorAll("[data-sign]")) {
    button.addEventListener("click", async () => {
      if (!button.dataset.sign) {
        statement.hidden = true;
        form.hidden = false;
        return;
      }
      try {
        let proof;
        if (button.dataset.sign === "key") {
          const key = await keyOf(form.key.files[0], texts);
          proof = { tokens: [await signedWith(key, shown.statements[0].signing_inputs, texts)] };
        } else {
          const options = PublicKeyCredential.parseRequestOptionsFromJSON(shown.passkeys[location.origin]);
          proof = { passkey: (await navigator.credentials.get({ publicKey: options })).toJSON() };
        }
        await send(`${path}/answer`, { ...draft, ...proof });
        say(texts.sent, false);
        statement.hidden = true;
        document.querySelector(".result-link").hidden = false;
        document.querySelector(".result-link a").focus();
      } catch (error) {
        failed(error);
      }
    });
  }
}

// Lists and runs are read again while somebody can see them. An answer that is an error leaves what is there.
function follow() {
  let next = 0;
  setInterval(() => {
    const place = document.querySelector("[data-follow]");
    if (!place || document.visibilityState !== "visible") return;
    if (!next) next = Date.now() + 1000 * Number(place.dataset.follow);
    if (Date.now() < next) return;
    next = Date.now() + 1000 * Number(place.dataset.follow);
    htmx.trigger(place, "follow");
  }, 500);
  const stale = document.querySelector("#stale");
  for (const name of ["htmx:response:error", "htmx:error"]) document.addEventListener(name, () => (stale.hidden = false));
  document.addEventListener("htmx:after:swap", (event) => {
    // An answer that is an error swaps nothing, and ends with this event too.
    if (event.detail.ctx.response.status >= 400) return;
    stale.hidden = true;
    showTimes(document);
    tick();
  });
}

showTimes(document);
themes();
keys();
answers();
tick();
setInterval(tick, 1000);
follow();
