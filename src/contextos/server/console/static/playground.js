// The playground: tries the scenario again while a person changes it, and makes links that contain it.
// A scenario in a link only fills the fields. Nothing is sent before the person asks for the first try.

const WAIT_MS = 500;
const MAX_LINK_CHARS = 2_000_000;
const PREFIX = "#scenario=";

const form = document.querySelector("#scenario");
const note = document.querySelector("#playground-note");
const share = document.querySelector("#share");
const fields = [...form.elements].filter((field) => field.name && field.type !== "hidden");

let isAsked = false;
let waiting = 0;
let current = null;

function say(text) {
  note.textContent = text;
  note.hidden = !text;
}

const encoded = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const decoded = (text) => new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0)));

function fill() {
  if (!location.hash.startsWith(PREFIX)) return;
  try {
    if (location.hash.length > MAX_LINK_CHARS) throw new Error("too long");
    const scenario = JSON.parse(decoded(location.hash.slice(PREFIX.length)));
    for (const field of fields) {
      const value = scenario[field.name];
      field.value = typeof value === "string" ? value : "";
      // A choice that there is not leaves none.
      if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = "";
    }
    for (const details of form.querySelectorAll("details")) {
      const within = [...details.querySelectorAll("input, textarea")];
      details.open = within.some((field) => field.value !== "" || field.name === "request");
    }
    say(note.dataset.filled);
  } catch {
    say(note.dataset.badLink);
  }
}

// Put what the server says of the scenario into the page. What the person writes is left as it is.
function show(html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  if (!answer.querySelector("#scenario")) return say(note.dataset.unknown);
  say("");
  const open = new Set([...document.querySelectorAll("#result details[open] > summary")].map((one) => one.textContent));
  for (const place of document.querySelectorAll("[data-live]")) {
    const next = answer.getElementById(place.id);
    if (next) place.replaceChildren(...document.importNode(next, true).childNodes);
    if (place.querySelector("li") && place.closest("details")) place.closest("details").open = true;
  }
  for (const summary of document.querySelectorAll("#result details > summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
}

async function attempt() {
  current?.abort();
  const mine = (current = new AbortController());
  const result = document.querySelector("#result");
  result.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), signal: mine.signal });
    if (answer.status === 429) say(note.dataset.slow);
    else if (answer.status === 413) say(note.dataset.tooLarge);
    else show(await answer.text());
  } catch (error) {
    if (error.name !== "AbortError") say(note.dataset.unknown);
  } finally {
    if (current === mine) result.removeAttribute("aria-busy");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  isAsked = true;
  attempt();
});
form.addEventListener("input", () => {
  clearTimeout(waiting);
  if (isAsked) waiting = setTimeout(attempt, WAIT_MS);
});
share.hidden = false;
share.addEventListener("click", async () => {
  const scenario = Object.fromEntries(fields.filter((field) => field.value).map((field) => [field.name, field.value]));
  history.replaceState(null, "", location.pathname + PREFIX + encoded(JSON.stringify(scenario)));
  try {
    await navigator.clipboard.writeText(location.href);
    say(note.dataset.shared);
  } catch {
    say(note.dataset.shareFailed);
  }
});
addEventListener("hashchange", fill);
// A page that was tried without this script, by a form, is asked for already.
isAsked = Boolean(document.querySelector('#result [name="before"]'));
fill();
