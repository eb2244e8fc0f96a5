"""The rows of operators and callers: what the command line, the settings and a program say of what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import contextos
from contextos.errors import ContextOSError
from tests.http_face import begin_deploys
from tests.messages.rows import Row, typed

BY = ("--by", "user_operator_5", "--key", "keys/user_operator_5.key")

TENANTS: tuple[tuple[str, ...], ...] = (
    ("runs", "list"),
    ("runs", "sessions"),
    ("runs", "show", "req_small"),
    ("approvals", "list"),
    ("pack", "list"),
    ("pack", "published"),
    ("pack", "observations"),
    ("policies", "list"),
    ("facts", "list", "customer:cus_77"),
    ("memory", "list"),
    ("breakers", "list"),
    ("slots", "selections", "run_1", "--org", "acme"),
    ("runs", "dead-letters"),
    ("verify",),
    ("apply", *BY),
    ("token", "--user", "usr_771", "--agent", "agt_support"),
)

FILES: tuple[tuple[str, ...], ...] = (
    ("invoke", "FILE"),
    ("compile", "FILE"),
    ("pack", "lint", "FILE"),
    ("pack", "publish", "FILE", *BY),
    ("verify", "FILE"),
    ("facts", "load", "FILE", *BY),
    ("adapters", "add", "openapi", "shop_api", "FILE"),
)
WRONG_FILES = ("a_folder", "empty.json", "bytes.json", "missing.json", "broken.json", "list.json")

COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("no_such_run", ("runs", "show", "req_smal")),
    ("no_such_command", ("runs", "lst")),
    ("no_such_option", ("runs", "list", "--limt", "3")),
    ("a_limit_of_0", ("runs", "list", "--limit", "0")),
    ("no_such_key", ("apply", "--by", "user_operator_5", "--key", "keys/nobody.key")),
    ("a_key_that_is_code", ("runs", "cancel", "req_small", "--by", "user_operator_5", "--key", "shop.py")),
    (
        "a_key_of_another",
        ("key", "rotate", "--purpose", "head", "--by", "user_operator_5", "--key", "keys/user_finance_lead_77.key"),
    ),
    ("no_such_operator", ("key", "rotate", "--purpose", "head", "--by", "nobody", "--key", "keys/user_operator_5.key")),
    ("no_such_purpose", ("key", "rotate", "--purpose", "heads", *BY)),
    ("an_export_that_is_none", ("verify", "pack.json")),
    ("no_workspace", ("runs", "list", "-w", "/")),
    ("a_workspace_that_is_a_file", ("runs", "list", "-w", "pack.json")),
    ("an_init_over_files", ("init", ".")),
)

SETTINGS: tuple[tuple[str, str], ...] = (
    ("misspelt", 'stroe = "x.db"\n'),
    ("misspelt_limit", "[limits]\nmax_tool_cals = 3\n"),
    ("misspelt_telemetry", '[telemetry.tenants.tenant_acme_prod]\notpl_url = "https://collector.example"\n'),
    ("telemetry_of_nobody", '[telemetry.tenants.tenant_acme_prd]\notlp_url = "https://collector.example"\n'),
    ("egress_of_nobody", '[egress]\nacme = ["api.example"]\n'),
    ("redaction_of_nobody", '[redaction]\ntenant_acme_prdo = ["email"]\n'),
    ("not_toml", "witness = off\n"),
    ("a_table_twice", "[limits]\n[limits]\n"),
    ("a_store_in_no_folder", 'store = "nowhere/x.db"\n'),
    ("no_such_database", 'store = "mysql://host/db"\n'),
    ("no_such_directory", 'directory = "people.json"\n'),
    ("no_such_keys", 'keys = "secrets"\n'),
    (
        "everything",
        """packs = [
  "packs",
  3,
]
profile = "embeded"
[limits]
total_tokens = 0
max_tool_cals = 3
[keys]
kind = "pkcs"
[pressure]
max_turns = 5000
""",
    ),
)


def _files() -> None:
    Path("a_folder").mkdir()
    Path("empty.json").write_bytes(b"")
    Path("bytes.json").write_bytes(bytes(range(256)))
    Path("broken.json").write_text('{"a": 1,}', "utf-8")
    Path("list.json").write_text("[]", "utf-8")


def _typed(id_: str, *words: str, reader: str = "operator") -> Row:
    return Row(id_, reader, "command line", " ".join(("contextos", *words)), typed(*words))


def _settings() -> Iterator[Row]:
    file = Path("contextos.toml")
    whole = file.read_text("utf-8")
    for name, text in SETTINGS:
        first = "".join(line for line in whole.splitlines(keepends=True) if not text.startswith(line.partition(" ")[0]))
        file.write_text(text + (first if "[" not in text.partition("\n")[0] else ""), "utf-8")
        if text.startswith("["):
            file.write_text(first + text, "utf-8")
        if name == "everything":
            file.write_text(text, "utf-8")
        yield Row(
            f"settings_{name}", "operator", "contextos.toml, contextos runs resume", text, typed("runs", "resume")
        )
    file.write_text(whole, "utf-8")


def _port() -> Iterator[Row]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        row = _typed("a_taken_port", "serve", "--port", port)
    yield Row(row.id, row.reader, row.door, row.given.replace(port, "PORT"), row.says.replace(port, "PORT"))


def _said(act: Callable[[], object]) -> str:
    try:
        act()
    except (ContextOSError, AttributeError) as error:
        problems = getattr(error, "problems", None)
        return "\n".join(str(one) for one in problems) if problems else str(error)
    return "fine"


def _programs() -> Iterator[Row]:
    async def awaited() -> None:
        await contextos.open(".")  # type: ignore[misc]

    async def asked(request: dict[str, object]) -> None:
        async with contextos.open(".") as app:
            await app.deployment.invoke(request)

    async def gate(**changed: str) -> None:
        async with contextos.open(".") as app:
            await app.gate(session="s1", user="usr_771", agent="agt_support", **changed)

    large = json.loads(Path("requests/large.json").read_text("utf-8"))
    other = {**large, "input": {**large["input"], "message": "another message"}}
    yield Row("not_opened", "caller", "in process", "contextos.open(w).gate", _said(lambda: contextos.open(".").gate))  # type: ignore[attr-defined]
    yield Row("awaited", "caller", "in process", "await contextos.open(w)", _said(lambda: asyncio.run(awaited())))
    for name, request in (
        ("an_id_twice", other),
        ("an_empty_request", {}),
        ("a_tenant_of_nobody", {**large, "tenant_id": "tenant_acme_prd"}),
        ("a_misspelt_member", {**large, "modee": "sync"}),
    ):
        yield Row(name, "caller", "in process", "deployment.invoke", _said(partial(asyncio.run, asked(request))))
    several = {**large, "environment": "staging", "context_pack_refs": ["ctxpack.support@5.2.9", "ctxpack.support"]}
    yield _typed("several_faults", "compile", _written("several.json", {**several, "request_id": "several"}))
    yield Row("a_session_of_nobody", "caller", "in process", "app.gate", _said(lambda: asyncio.run(gate(intent="x"))))


def _written(name: str, body: dict[str, object]) -> str:
    Path(name).write_text(json.dumps(body), "utf-8")
    return name


def _sessions(folder: Path) -> Iterator[Row]:
    async def opened() -> None:
        await begin_deploys(folder)
        async with contextos.open(folder) as app:
            for message in ("a rollback", "another one"):
                await app.gate(session="s1", user="ana", token="tok_ana", agent="agt_deploy", message=message)

    yield Row("a_session_opened_otherwise", "caller", "in process", "app.gate", _said(lambda: asyncio.run(opened())))


def produced(folder: Path) -> Iterator[Row]:
    """The rows of operators, from the example that `contextos demo` makes in `folder`."""
    before, state = Path.cwd(), os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        typed("demo", "--yes", "--keep", str(folder / "shop"))
        os.chdir(folder / "shop")
        _files()
        for words in TENANTS:
            name = "_".join(word for word in words[:2] if word[0] != "-")
            yield _typed(f"tenant_{name}", *words, "--tenant", "tenant_acme_prd")
        for words in FILES:
            for file in WRONG_FILES:
                id_ = f"{'_'.join(words[: words.index('FILE')][:3])}_{file.partition('.')[0]}"
                yield _typed(id_, *(word.replace("FILE", file) for word in words))
        for id_, words in COMMANDS:
            yield _typed(id_, *words)
        yield from _port()
        yield from _programs()
        yield from _sessions(folder / "deploys")
        shutil.copytree(".", folder / "other")
        os.chdir(folder / "other")
        yield from _settings()
    finally:
        os.chdir(before)
        os.environ.pop("XDG_STATE_HOME") if state is None else os.environ.update(XDG_STATE_HOME=state)
