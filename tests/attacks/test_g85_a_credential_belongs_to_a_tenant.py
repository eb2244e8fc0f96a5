"""G85: a tenant whose calls are sent with the secret of another one, or by a process that serves another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.adapters.foreign.adapter_file import credential_names
from contextos.adapters.openapi.adapter import openapi_adapter
from contextos.adapters.openapi.draft import draft_openapi
from contextos.audit.replay import replay
from contextos.cli import run_command_line
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ports.gates import Done
from contextos.errors import InvalidSettings
from contextos.server.routes.health import Readiness, get_readiness
from contextos.workspace import App, make_keys, open_app
from contextos.workspace.adapter_files import publish_adapter_file
from contextos.workspace.settings import Settings
from tests.attacks.test_d34_runs_outlive_hostile_tools import TENANT as LAB_TENANT
from tests.attacks.test_d34_runs_outlive_hostile_tools import session
from tests.openapi_documents import OK, document
from tests.raw_http import RawServer, raw_server
from tests.servers.adapters import HOSTILE, drafted, hostile

SETTINGS = 'unsafe = ["unsafe_local_directory", "unsafe_local_keys"]\nwitness = "off"\n'
PEOPLE = json.loads((Path(__file__).resolve().parents[2] / "examples" / "empty" / "directory.json").read_text("utf-8"))
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
SECRETS = {"CRM_TOKEN": "everybodys-secret-0", "ACME_CRM": "acmes-own-secret-1", "GLOBEX_CRM": "globexs-own-secret-2"}
OF_EACH = "tenants = { acme = { CRM_TOKEN = 'ACME_CRM' }, globex = { CRM_TOKEN = 'GLOBEX_CRM' } }"


def _workspace(path: Path, file: dict[str, Any], stated: str, *tenants: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "contextos.toml").write_text(SETTINGS)
    (path / "adapters").mkdir(exist_ok=True)
    make_keys(path / "keys")
    [people] = PEOPLE.values()
    (path / "directory.json").write_text(json.dumps(dict.fromkeys(tenants, people)))
    (path / "adapters" / "crm.json").write_text(json.dumps(file))
    publish_adapter_file(path, path / "adapters" / "crm.json")
    with (path / "contextos.toml").open("a") as settings:
        settings.write(stated + "\n")
    return path


def _api(port: int, **credential: Any) -> dict[str, Any]:
    paths = {"/said": {"get": {"operationId": "say", "responses": OK}}}
    url = f"http://127.0.0.1:{port}"
    file = draft_openapi("crm", document(paths), server=url, internal=True, reads=["say"]).to_json()
    file["connection"]["credentials"] = {"own": {"place": "bearer", **(credential or {"env": "CRM_TOKEN"})}}
    file["operations"]["say"]["credentials"] = ["own"]
    return {"format": "contextos.adapter_file.v1", **file}


async def _say(app: App, tenant: str) -> AdapterReply:
    adapter = app.deployment.ports.adapters(tenant)["crm"]
    context = CallContext(tenant, "run_1", "tool_1", None, 0, 5_000, egress=adapter.describe().egress)
    return await adapter.call("say", {}, context)


def _with(path: Path, act: Callable[[App], Awaitable[None]]) -> None:
    async def go() -> None:
        app = await open_app(Settings.read(path))
        try:
            await act(app)
        finally:
            app.close()

    asyncio.run(go())


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)


def _bearers(server: RawServer) -> list[str]:
    heads = [one.decode().lower() for one in server.requests]
    return [line.partition("bearer ")[2] for head in heads for line in head.split("\r\n") if "bearer " in line]


@pytest.mark.parametrize("place", ["env", "file"])
def test_each_tenant_calls_with_its_own_secret(place: str, tmp_path: Path) -> None:
    stated = OF_EACH
    if place == "file":
        stated = OF_EACH.replace("CRM_TOKEN", "s/all").replace("s/all =", '"s/all" =')
        stated = stated.replace("ACME_CRM", "s/acme").replace("GLOBEX_CRM", "s/globex")
        (tmp_path / "w" / "s").mkdir(parents=True)
        for name, secret in zip(("all", "acme", "globex"), SECRETS.values(), strict=True):
            (tmp_path / "w" / "s" / name).touch(0o600)
            (tmp_path / "w" / "s" / name).write_text(secret)

    async def go() -> None:
        async with raw_server(ANSWER) as server:
            file = _api(server.port, **({"file": "s/all"} if place == "file" else {}))
            app = await open_app(Settings.read(_workspace(tmp_path / "w", file, stated, "acme", "globex", "third")))
            try:
                for tenant in ("acme", "globex", "acme"):
                    assert (await _say(app, tenant)).error is None
                assert _bearers(server) == [SECRETS["ACME_CRM"], SECRETS["GLOBEX_CRM"], SECRETS["ACME_CRM"]]
                assert "crm" not in app.deployment.ports.adapters("third"), "nobody gave it a credential"
                [one] = app.deployment.ports.adapters("globex")["crm"].describe().capabilities
                assert one.auth.credentials == (f"{place}:{'GLOBEX_CRM' if place == 'env' else 's/globex'}",)
                assert app.shared_credentials == ()
            finally:
                app.close()

    asyncio.run(go())


REFUSED = {
    "nobody says whose": ("", "whose_credentials"),
    "a tenant without one": ("tenants = { acme = {} }", "other_credentials"),
    "one that the file has not": (
        "tenants = { acme = { CRM_TOKEN = 'ACME_CRM', CRM_KEY = 'GLOBEX_CRM' } }",
        "other_credentials",
    ),
    "one of two tenants": (OF_EACH.replace("GLOBEX_CRM", "ACME_CRM"), "shared_credential"),
    "both": (f"{OF_EACH}\nshared = true", "bad_setting"),
    "no table": ("tenants = ['acme']", "bad_setting"),
    "no truth": ("shared = 'yes'", "bad_setting"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_credential_of_nobody_or_of_two_starts_nothing(why: str, tmp_path: Path) -> None:
    stated, code = REFUSED[why]
    path = _workspace(tmp_path / "w", _api(9), stated, "acme", "globex")
    with pytest.raises(InvalidSettings) as refused:
        _with(path, lambda app: _say(app, "acme"))  # type: ignore[arg-type, return-value]
    assert refused.value.problems[0].code == code
    assert refused.value.problems[0].pointer.startswith("/adapters/0")


@pytest.mark.parametrize("again", ["ACME_CRM", "./ACME_CRM"], ids=["under another name", "in another spelling"])
def test_no_credential_of_a_tenant_is_that_of_another_one(again: str, tmp_path: Path) -> None:
    of_acme = "acme = { CRM_TOKEN = 'ACME_CRM', ACME_CRM = 'GLOBEX_CRM' }"
    of_each = f"tenants = {{ {of_acme}, globex = {{ CRM_TOKEN = 'CRM_TOKEN', ACME_CRM = '{again}' }} }}"
    file = _api(9)
    file["connection"]["credentials"]["other"] = {"place": "header", "name": "X-Key", "env": "ACME_CRM"}
    with pytest.raises(InvalidSettings) as refused:
        _with(_workspace(tmp_path / "w", file, of_each, "acme", "globex"), lambda app: _say(app, "acme"))  # type: ignore[arg-type, return-value]
    assert refused.value.problems[0].code == "shared_credential"


def test_another_adapter_takes_no_credential_of_a_tenant(tmp_path: Path) -> None:
    path = _workspace(tmp_path / "w", _api(9), OF_EACH, "acme", "globex")
    again = _api(9)
    again["definition"]["adapter_id"] = "erp"
    (path / "adapters" / "erp.json").write_text(json.dumps(again))
    publish_adapter_file(path, path / "adapters" / "erp.json")
    with (path / "contextos.toml").open("a") as settings:
        settings.write("tenants = { acme = { CRM_TOKEN = 'GLOBEX_CRM' } }\n")
    with pytest.raises(InvalidSettings) as refused:
        _with(path, lambda app: _say(app, "acme"))  # type: ignore[arg-type, return-value]
    assert refused.value.problems[0].code == "shared_credential"


def test_a_secret_under_a_plain_name_of_a_process_is_a_credential() -> None:
    connection = {"kind": "mcp", "command": "x", "env": ["HOME", "PATH"], "env_from": {"HOME": "CRM_TOKEN"}}
    assert credential_names(SimpleNamespace(connection=connection)) == {"HOME"}  # type: ignore[arg-type]


def test_the_only_tenant_owns_it_and_one_that_comes_later_does_not(tmp_path: Path) -> None:
    path = _workspace(tmp_path / "w", _api(9), "", "acme")

    async def act(app: App) -> None:
        assert "crm" in app.deployment.ports.adapters("acme")
        assert "crm" not in app.deployment.ports.adapters("globex")

    _with(path, act)


def test_one_for_all_says_so_and_readiness_shows_it(tmp_path: Path) -> None:
    path = _workspace(tmp_path / "w", _api(9), "shared = true", "acme", "globex")

    async def act(app: App) -> None:
        assert app.shared_credentials == ("crm",)
        assert {"crm"} == app.deployment.ports.adapters("acme").keys() & app.deployment.ports.adapters("globex").keys()

        assert await get_readiness(app, _Issuers(), _Serving()) == Readiness(
            status="ready", shared_credentials=("crm",)
        )  # type: ignore[arg-type]

    _with(path, act)


class _Issuers:
    """Issuers that all answer."""

    def silent_issuers(self) -> tuple[str, ...]:
        return ()


class _Serving:
    """The request to a server that is not stopping."""

    app: Any = SimpleNamespace(state=SimpleNamespace(draining=asyncio.Event()))


@pytest.mark.parametrize("stated", ["", "shared = true"])
def test_what_has_no_effect_is_refused(stated: str, tmp_path: Path) -> None:
    file = _api(9)
    file["connection"]["credentials"], file["operations"]["say"]["credentials"] = {}, []
    path = _workspace(tmp_path / "w", file, stated, "acme", "globex")

    async def act(app: App) -> None:
        assert app.deployment.ports.adapters("acme")["crm"] is app.deployment.ports.adapters("globex")["crm"]

    if not stated:
        _with(path, act)
        return
    with pytest.raises(InvalidSettings, match="no credentials"):
        _with(path, act)


@pytest.mark.parametrize("stated", ["", "shared = true", OF_EACH])
def test_no_process_of_a_server_serves_two_tenants(stated: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    file = asyncio.run(drafted(hostile("plain", tmp_path / "w"), tmp_path / "w", reads=["say"]))
    file["definition"]["adapter_id"] = "crm"
    if stated:
        file["connection"]["env"] = ["CRM_TOKEN"]
    path = _workspace(tmp_path / "w", file, stated, "acme", "globex")

    async def act(app: App) -> None:
        for tenant in ("acme", "globex", "acme"):
            adapter = app.deployment.ports.adapters(tenant)["crm"]
            context = CallContext(tenant, "run_1", "tool_1", None, 0, 20_000)
            assert (await adapter.call("say", {"text": "a"}, context)).error is None
        running = _environments()
        assert len(running) == 2
        given = [SECRETS["ACME_CRM"], SECRETS["GLOBEX_CRM"]] if stated == OF_EACH else [SECRETS["CRM_TOKEN"]] * 2
        if stated:
            assert sorted(one["CRM_TOKEN"] for one in running) == sorted(given)

    _with(path, act)
    assert _environments() == []


def _environments() -> list[dict[str, str]]:
    """The environments of the servers that run now."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdecimal() and str(HOSTILE).encode() in (place / "cmdline").read_bytes():
                raw = (place / "environ").read_text().split("\0")
                found.append(dict(one.split("=", 1) for one in raw if "=" in one))
        except OSError:
            continue
    return found


def test_the_effect_ledger_names_the_credential_and_never_its_value(tmp_path: Path) -> None:
    async def go() -> None:
        async with raw_server(ANSWER) as server:
            file = _api(server.port)
            file["definition"]["adapter_id"] = "lab"
            definition = AdapterDefinition.model_validate(file["definition"])
            adapter = openapi_adapter(file["connection"], definition, file["operations"], tmp_path)
            async with session(adapter, tuple(definition.egress)) as (app, gate):
                answer = await gate.call("lab.say", {}, call_id="say")
                assert isinstance(answer, Done), answer
                view = await gate.finish("denied")
                entries = await app.deployment.ports.stores.tenant(LAB_TENANT).read(view.run_id)
                sent = [body for one in entries if one.kind == "tool.dispatching" and (body := read_body(one))]
                assert [one["credentials"] for one in sent] == [["env:CRM_TOKEN"]]
                assert SECRETS["CRM_TOKEN"] not in "".join(str(one.body) for one in entries)
                again = await replay(app.deployment, LAB_TENANT, view.run_id)
                assert view.record is not None
                assert again.record_hash == view.record["record_hash"]

    asyncio.run(go())


def test_a_rule_of_a_tenant_is_linted_with_the_tools_that_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    path = _workspace(tmp_path / "w", _api(1), OF_EACH, "acme", "globex")
    rule = {"rule_id": "R_NO", "applies_to": {"capability": "crm.sayy"}, "then": {"allow": False}}
    dsl = {"language": "jsonlogic", "rules": [{**rule, "if": {"==": [1, 1]}}]}
    policy = {"version": "1.0.0", "tenant": "acme", "bundle": {"bundle_id": "POLICY_ACME", "policy_dsl": dsl}}
    (path / "policy.json").write_text(json.dumps(policy))
    code = run_command_line(["pack", "lint", "--adapters", str(path / "policy.json"), "-w", str(path)])
    said = capsys.readouterr()
    assert (code, "`crm` declares no tool `crm.sayy`" in said.out + said.err) == (2, True), said
