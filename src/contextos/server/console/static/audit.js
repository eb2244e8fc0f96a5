// Sends an export to /v1, which verifies it and stores nothing, and shows what was found. All of it is shown as text.

const place = document.querySelector("#export");
if (place) {
  const [form, result, input] = ["form", ".result", "#export-file"].map((one) => place.querySelector(one));
  const texts = place.dataset;
  form.hidden = false;

  const say = (text, name, lines = []) => {
    result.className = `result ${name}`;
    result.replaceChildren(...[text, ...lines].map((line) => Object.assign(document.createElement("p"), { textContent: line })));
  };
  const shown = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [file] = input.files;
    if (!file) return say(texts.noFile, "fault");
    if (file.size > Number(texts.most) * 2 ** 20) return say(texts.large, "fault");
    say(texts.busy, "");
    const headers = { "Content-Type": "application/jsonl", "X-CSRF-Token": document.querySelector("main").dataset.csrf };
    try {
      const answer = await fetch("/v1/exports/verifications", { method: "POST", headers, body: file });
      const found = await answer.json();
      if (!answer.ok) return say(`${texts.failed} ${shown(found.detail)}`, "fault");
      if (found.fault !== null) return say(`${texts.broken} ${shown(found.fault)}`, "fault");
      const runs = found.runs.slice(0, 100).map((run) => `${run.run_id}  ${run.entries}  ${run.head}`);
      const unsigned = found.unsigned.length ? [`${texts.unsigned} ${found.unsigned.map(shown).join("; ")}`] : [];
      say(`${texts.verified} ${found.runs.length} ${texts.runs}, ${found.acts} ${texts.acts}.`, "good", [...unsigned, ...runs]);
    } catch {
      say(texts.failed, "fault");
    }
  });
}
