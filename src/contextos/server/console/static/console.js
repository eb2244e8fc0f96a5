// What the pages of the console do beyond reading: times in the reader's zone, deadlines, the theme, keys, and answers.

import { send, signs } from "./signing.js";

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

const changed = () => Object.assign(new Error(""), { status: 409 });

function answers() {
  const place = document.querySelector("#answer");
  if (!place) return;
  const path = `/v1/approvals/${place.dataset.run}`;
  signs(place, async (button, form) => {
    const question = await send(path);
    const draft = { verdict: button.dataset.verdict, reason: form.reason.value };
    if (question.void && draft.verdict === "approved") throw changed();
    const { statements, text, passkeys } = await send(`${path}/statement`, draft);
    // What is signed is the question of this page, and not the next one of the run.
    if (statements[0].statement.binding_digest !== place.dataset.binding) throw changed();
    const inputs = statements.map((one) => one.signing_inputs);
    return { text, inputs, passkey: passkeys[location.origin], finish: (proof) => send(`${path}/answer`, { ...draft, ...proof }) };
  });
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
