"""The same as test_g54 for the TypeScript client: each place of a question and of a statement is altered by the process
that answers in place of the server, and the client signs nothing but what it showed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextos.client import connect
from contextos.contracts.encoding.jcs import canonical
from tests.http_face import LEAD, REQUESTER, TENANT, begin_refunds
from tests.service_process import ServiceProcess, service
from tests.typescript import node, npm, typescript_project
from tests.world import run

pytestmark = pytest.mark.slow

ALTERING = """
import { createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { answer, connect, found } from "./client.js";
import { contentAddress, signingInput } from "./statements.js";

const [run, kid, keyFile, approver] = process.argv.slice(2);
const prefix = Buffer.from("302e020100300506032b657004220420", "hex");
const raw = Buffer.from(readFileSync(keyFile, "utf8").trim(), "hex");
const key = createPrivateKey({ key: Buffer.concat([prefix, raw]), format: "der", type: "pkcs8" });
const clone = (value) => JSON.parse(JSON.stringify(value));

// Each leaf as another value of its type and of another type, each member gone, and a member more everywhere.
function* alterations(root, value = root, path = []) {
  const at = "/" + path.join("/");
  const within = (change) => (document) => {
    const copy = clone(document);
    if (!path.length) return change(copy);
    let place = copy;
    for (const name of path.slice(0, -1)) place = place[name];
    place[path.at(-1)] = change(place[path.at(-1)]);
    return copy;
  };
  if (Array.isArray(value)) {
    yield [`append ${at}`, within((list) => [...list, list.at(-1) ?? "eve"])];
    for (const [index, child] of value.entries()) yield* alterations(root, child, [...path, index]);
  } else if (value !== null && typeof value === "object") {
    yield [`add ${at}`, within((members) => ({ ...members, added: "eve" }))];
    for (const [name, child] of Object.entries(value)) yield* alterations(root, child, [...path, name]);
  } else {
    const numbers = [value + 1, String(value), true];
    const others = { string: [value + "x", null], number: numbers, boolean: [!value, Number(value)] };
    for (const [number, other] of (others[typeof value] ?? ["x"]).entries()) {
      yield [`set ${at} ${number}`, within(() => other)];
    }
  }
  if (path.length) {
    yield [`remove ${at}`, (document) => {
      const copy = clone(document);
      let place = copy;
      for (const name of path.slice(0, -1)) place = place[name];
      if (Array.isArray(place)) place.splice(path.at(-1), 1);
      else delete place[path.at(-1)];
      return copy;
    }];
  }
}

const api = connect(process.env.CONTEXTOS_URL, () => process.env.LEAD_TOKEN);
const path = { run };
const body = { verdict: "approved", reason: "seen" };
const honest = await found(api.GET("/v1/approvals/{run}", { params: { path } }));
const said = await found(api.POST("/v1/approvals/{run}/statement", { params: { path }, body }));
let question = clone, statement = clone, posted = null, hold = true;

// The process in between: every answer is theirs, and no token gets through while they hold it.
const headers = { "Content-Type": "application/json" };
const answerOf = (document) => new Response(JSON.stringify(document), { headers });
const real = globalThis.fetch;
globalThis.fetch = async (asked) => {
  if (asked.url.endsWith("/statement")) return answerOf(statement(said));
  if (!asked.url.endsWith("/answer")) return answerOf(question(honest));
  const text = await asked.clone().text();
  posted = JSON.parse(text).tokens[0];
  if (hold) throw new Error("held");
  return real(asked);
};

async function attempt(name, whose, tenant) {
  posted = null;
  const sent = connect(process.env.CONTEXTOS_URL, () => process.env.LEAD_TOKEN);
  let refused = "", shown = null;
  try {
    shown = await found(sent.GET("/v1/approvals/{run}", { params: { path } }));
    await answer(sent, shown, "approved", "seen", kid, key, whose, tenant);
  } catch (error) {
    refused = String(error.message);
  }
  const amount = shown?.args?.find?.((one) => one?.name === "amount_inr")?.value ?? null;
  return { name, token: posted, refused, amount };
}

const tried = [];
for (const [name, change] of alterations(honest)) {
  [question, statement] = [change, clone];
  tried.push(await attempt(`question ${name}`, approver));
}
for (const [name, change] of alterations(said)) {
  [question, statement] = [clone, change];
  tried.push(await attempt(`statement ${name}`, approver));
}

// Shown as 42, with every digest computed again; then with the statement of that too, which reaches the server.
const smaller = (document) => {
  const copy = clone(document);
  copy.args.find((one) => one.name === "amount_inr").value = 42;
  copy.binding.args_digest = contentAddress(Object.fromEntries(copy.args.map((one) => [one.name, one.value])));
  copy.binding_digest = contentAddress(copy.binding);
  return copy;
};
[question, statement] = [smaller, clone];
const rehashed = await attempt("rehashed", approver);
statement = (document) => {
  const copy = clone(document), shown = smaller(honest);
  const [given] = copy.statements;
  given.statement.args = Object.fromEntries(shown.args.map((one) => [one.name, one.value]));
  Object.assign(given.statement, { binding: shown.binding, binding_digest: shown.binding_digest });
  given.signing_inputs = { [kid]: signingInput(kid, "contextos-approval+jws", given.statement) };
  return copy;
};
hold = false;
const restated = await attempt("restated", approver);
[question, statement] = [clone, clone];
const elsewhere = await attempt("another tenant", approver, "tenant_other");
const last = await attempt("honest", approver, honest.binding.tenant_id);
console.log(JSON.stringify({ tried, rehashed, restated, elsewhere, last, statement: said.statements[0].statement }));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Path]]:
    place = tmp_path_factory.mktemp("service")
    run(begin_refunds(place / "w"))
    with service(place / "w", TENANT, REQUESTER, LEAD, XDG_STATE_HOME=str(place / "state")) as started:
        yield started, place / "w"


@pytest.fixture(scope="module")
def built(server: tuple[ServiceProcess, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = typescript_project(tmp_path_factory.mktemp("typescript"), server[0].url)
    said = npm(made, "run", "build")
    assert said.returncode == 0, said.stdout + said.stderr
    return made


def payload(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_whatever_is_altered_nothing_is_signed_that_was_not_shown(
    built: Path, server: tuple[ServiceProcess, Path]
) -> None:
    started, workspace = server
    (built / "dist" / "altering.js").write_text(ALTERING, "utf-8")
    with connect(started.url, started.tokens[REQUESTER]) as client:
        waiting = client.invoke(json.loads((workspace / "requests" / "next.json").read_text("utf-8")))
        asked = httpx.post(
            f"{started.url}/v1/approvals/{waiting.run_id}/statement",
            json={"verdict": "approved"},
            headers={"Authorization": f"Bearer {started.tokens[LEAD]}"},
            trust_env=False,
        ).json()
        [kid] = asked["statements"][0]["signing_inputs"]
        key = str(workspace / "keys" / f"{LEAD}.key")
        said = node(
            built,
            "dist/altering.js",
            waiting.run_id,
            kid,
            key,
            LEAD,
            CONTEXTOS_URL=started.url,
            LEAD_TOKEN=started.tokens[LEAD],
        )
        assert said.returncode == 0, said.stderr
        found = json.loads(said.stdout)
        assert len(found["tried"]) > 300
        for one in found["tried"]:
            if one["token"] is not None:
                # A member that the client neither shows nor signs.
                assert payload(one["token"]) == found["statement"], one["name"]
                known = ("add", "text", "nonce", "passkeys")
                assert any(name in one["name"] for name in known), one["name"]
        assert (found["rehashed"]["amount"], found["rehashed"]["token"]) == (42, None)
        assert found["restated"]["amount"] == payload(found["restated"]["token"])["args"]["amount_inr"] == 42
        assert "other_binding" in found["restated"]["refused"] or "assertion_invalid" in found["restated"]["refused"]
        assert (found["elsewhere"]["token"], "another tenant" in found["elsewhere"]["refused"]) == (None, True)
        assert found["last"]["refused"] == ""
        assert client.wait(waiting.run_id, timeout_s=60).status == "DECIDED"


CANONICAL = """
import { canonical } from "./statements.js";
for (const one of JSON.parse(process.argv[2])) console.log(canonical(one));
"""


def test_both_clients_write_the_same_canonical_json(built: Path) -> None:
    values: list[Any] = [
        {"b": 1.0, "a": [None, True, "\u202e\u20ac\n\\ \u2028"], "\ufb33": 1, "\U0001f600": 2, "Z": 3, "": {}},
        [0.1, 1e21, 1e-7, 333333333.33333329, 9007199254740991, -0.0, 5e-324, 1.7976931348623157e308],
        {"__proto__": 1, "toString": 2, "10": 3, "9": 4},
    ]
    (built / "dist" / "canonical.js").write_text(CANONICAL, "utf-8")
    said = node(built, "dist/canonical.js", json.dumps(values))
    assert said.stdout.encode().splitlines() == [canonical(one) for one in values], said.stderr
