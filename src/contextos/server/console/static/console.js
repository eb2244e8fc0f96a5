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

async function post(path, body) {
  const csrf = document.querySelector("main").dataset.csrf;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.detail), { status: answer.status });
  return said;
}

async function keyOf(file) {
  const hex = (await file.text()).trim();
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw new Error("This file is not a key as `contextos key new` makes it, or it is encrypted.");
  return crypto.subtle.importKey("pkcs8", hexBytes(PKCS8_ED25519 + hex), "Ed25519", true, ["sign"]);
}

// The key id is the RFC 7638 thumbprint where the directory says so, so the id whose public key fits is looked for.
async function signedWith(key, inputs) {
  const kids = Object.keys(inputs);
  if (!kids.length) throw new Error("The directory has no key of yours.");
  const { x } = await crypto.subtle.exportKey("jwk", key);
  const thumbprint = base64url(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`)));
  const kid = kids.find((one) => one === thumbprint) ?? (kids.length === 1 ? kids[0] : undefined);
  if (!kid) throw new Error("This is not a key that the directory has of you.");
  const signature = await crypto.subtle.sign("Ed25519", key, new TextEncoder().encode(inputs[kid]));
  return `${inputs[kid]}.${base64url(signature)}`;
}

function answers() {
  const place = document.querySelector("#answer");
  if (!place) return;
  const [form, statement, result] = [".answer form", ".statement", ".result"].map((one) => document.querySelector(one));
  const path = `/v1/approvals/${place.dataset.run}`;
  let draft, shown;
  form.hidden = false;

  const failed = (error) => {
    result.className = "result fault";
    result.textContent = error.status === 409 || error.status === 404 ? result.dataset.changed : `${result.dataset.failed} ${error.message}`;
  };
  for (const button of form.querySelectorAll("[data-verdict]")) {
    button.addEventListener("click", async () => {
      try {
        const question = await (await fetch(path)).json();
        const isVoid = question.void && button.dataset.verdict === "approved";
        if (isVoid || question.binding_digest !== place.dataset.binding) throw Object.assign(new Error(""), { status: 409 });
        draft = { verdict: button.dataset.verdict, reason: form.reason.value };
        shown = await post(`${path}/statement`, draft);
        statement.querySelector("pre").textContent = shown.text;
        statement.querySelector('[data-sign="key"]').hidden = !form.key.files.length;
        statement.querySelector('[data-sign="passkey"]').hidden = !shown.passkeys[location.origin];
        result.textContent = form.key.files.length || shown.passkeys[location.origin] ? "" : form.querySelector("#key-help").textContent;
        statement.hidden = false;
        form.hidden = true;
        statement.querySelector("button:not([hidden])").focus();
      } catch (error) {
        failed(error);
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
          proof = { tokens: [await signedWith(await keyOf(form.key.files[0]), shown.statements[0].signing_inputs)] };
        } else {
          const options = PublicKeyCredential.parseRequestOptionsFromJSON(shown.passkeys[location.origin]);
          proof = { passkey: (await navigator.credentials.get({ publicKey: options })).toJSON() };
        }
        await post(`${path}/answer`, { ...draft, ...proof });
        result.className = "result";
        result.textContent = result.dataset.sent;
        statement.hidden = true;
        document.querySelector(".result-link").hidden = false;
        document.querySelector(".result-link a").focus();
      } catch (error) {
        failed(error);
      }
    });
  }
}

showTimes(document);
themes();
keys();
answers();
tick();
setInterval(tick, 1000);
document.addEventListener("htmx:after:swap", () => {
  showTimes(document);
  tick();
});
