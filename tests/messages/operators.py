"""The rows of operators and callers: what the command line, the settings and a program say of what is wrong."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import contextos
from contextos.cli import command_line, run_command_line
from contextos.cli.terminal import DEFECT
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.ports.storage import Batch
from contextos.errors import ContextOSError
from tests.certificates import certificate
from tests.http_face import begin_deploys
from tests.messages.rows import Row, typed, working

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

ACTOR = "email_outreach/actor.json"
WRONG_FILES = ("a_folder", "empty.json", "bytes.json", "missing.json", "broken.json", "list.json")
# What a file argument of a command needs beside it, so that the command gets as far as to read the file.
BESIDE: dict[str, tuple[str, ...]] = {
    "serve --tls-cert": ("--port", "0", "--tls-key", "tls.key"),
    "serve --tls-key": ("--port", "0", "--tls-cert", "tls.crt"),
    "mcp serve": ("--user", "usr_771", "--session", "s1"),
    "runs settle": ("--happened",),
    "runs resolve": ("--decided",),
    "memory review": ("--promote",),
    "key new": ("--pkcs8",),
    "adapters add mcp": ("--url", "https://tools.example/mcp"),
}
VALUES = {
    "ID": "user_operator_5",
    "RUN": "req_small",
    "NAME": "shop_api",
    "SLOT": "offeringContext",
    "JSON": "1",
    "AGENT": "email_outreach/cinatra/oas.json",
    "ACTOR.json": ACTOR,
    "--url": "https://agent.example",
    "--agent": "agt_support",
    "--key": "keys/user_operator_5.key",
}

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
    shutil.rmtree("a_folder", ignore_errors=True)
    Path("a_folder").mkdir()
    for file in ("missing.json", "1"):
        shutil.rmtree(file, ignore_errors=True)
        Path(file).unlink(missing_ok=True)
    Path("empty.json").write_bytes(b"")
    Path("bytes.json").write_bytes(bytes(range(256)))
    Path("broken.json").write_text('{"a": 1,}', "utf-8")
    Path("list.json").write_text("[]", "utf-8")
    for file in WRONG_FILES[1:]:
        if file != "missing.json":
            Path(file).chmod(0o600)


def _typed(id_: str, *words: str, reader: str = "operator") -> Row:
    return Row(id_, reader, "command line", " ".join(("contextos", *words)), typed(*words))


def _commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in getattr(group, "commands", {}).items():
        yield from _commands(one, *path, name)
    if not hasattr(group, "commands"):
        yield path, group


def _option(one: Any) -> str:
    return max(one.opts, key=len)


def _is_file(one: Any) -> bool:
    return "Path" in str(one.type_descriptor.annotation) or "FILE" in (one.metavar or "")


def _line(path: tuple[str, ...], command: Any, under: Any, file: str) -> list[str]:
    """A line of a command with what it requires, and the file under the argument or option `under`."""
    name = " ".join(path)
    words = [*path, *BESIDE.get(f"{name} {_option(under)}", BESIDE.get(name, ()))]
    for one in command.params:
        if one is not under and not one.required:
            continue
        metavar = (one.metavar or "").strip("[].")
        is_number = "int" in str(one.type_descriptor.annotation)
        plain = VALUES.get(_option(one), VALUES.get(metavar, "requests/small.json" if _is_file(one) else "1"))
        value = file if one is under else "1" if is_number else metavar.split("|")[0] if "|" in metavar else plain
        words += [value] if one.param_type_name == "argument" else [_option(one), value]
    return words


def _wrong_files() -> Iterator[Row]:
    """Each file argument of each command, as the parser has them, with each wrong file: a row for each message."""
    said: dict[tuple[str, str], list[str]] = {}
    for path, command in _commands(command_line()):
        for under in filter(_is_file, command.params):
            if "DIR" in (under.metavar or "") or under.name == "workspace":
                continue
            for file in WRONG_FILES:
                _files()
                words = _line(path, command, under, file)
                heard = io.StringIO()
                with redirect_stdout(heard), redirect_stderr(heard):
                    code = run_command_line(words)
                message = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", heard.getvalue())
                # What says nothing of the file was refused before the file was read.
                if code and (file in message or under.param_type_name == "argument" or code == DEFECT):
                    said.setdefault((file, message), []).append(f"contextos {' '.join(words)}")
    for (file, message), lines in said.items():
        words = [word.lstrip("-") for word in lines[0].split()[1:] if "/" not in word]
        name = "_".join([*words[: words.index(file)], file.partition(".")[0]] if file in words else words)
        yield Row(name, "operator", "command line", "\n".join(lines), message)


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
        rows = [
            _typed("a_taken_port", "serve", "--port", port),
            _typed("a_taken_port_mcp", "mcp", "serve", "--agent", "agt_support", "--http", f"127.0.0.1:{port}"),
            _typed("a_taken_port_slots", "slots", "serve", "--actor", ACTOR, "--http", f"127.0.0.1:{port}"),
        ]
    for row in rows:
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

    async def held() -> None:
        async with contextos.open(folder) as app, contextos.open(folder) as other:
            gate = await app.gate(session="s2", user="ana", token="tok_ana", agent="agt_deploy")
            store = app.deployment.ports.stores.tenant(gate.tenant_id)
            lease = await LEASES.one(store, gate.run_id)
            assert lease is not None
            hour = app.deployment.ports.clock.now_us() + 3_600_000_000
            mine = replace(lease.body, owner=app.deployment.ports.owner, until_us=hour)
            await store.commit(Batch(run=gate.run_id, writes=(LEASES.write(gate.run_id, lease.version, mine),)))
            again = await other.gate(session="s2", user="ana", token="tok_ana", agent="agt_deploy")
            await again.call(again.tools[0], {"service": "web"}, call_id="1")

    yield Row("a_session_opened_otherwise", "caller", "in process", "app.gate", _said(lambda: asyncio.run(opened())))
    said = re.sub("run_[0-9a-f]{16}", "RUN", _said(lambda: asyncio.run(held())))
    yield Row("a_session_of_another_process", "caller", "in process", "gate.call", said)


def _full_disk() -> Iterator[Row]:
    """What commands say where no file can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, words in (
        ("invoke", ("invoke", "requests/next.json")),
        ("sign", ("pack", "sign", "packs/support.json", *BY[2:], "--out", "signed.json")),
        ("key", ("key", "new", "new.key")),
        ("init", ("init", "new")),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            says = typed(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        yield Row(f"a_full_disk_{name}", "operator", "command line", f"contextos {' '.join(words)}", says)


def _servers() -> Iterator[Row]:
    """What is said of a database whose server is not there, or ends the connection."""
    settings = Path("contextos.toml")
    whole = settings.read_text("utf-8")
    with socket.socket() as server, socket.socket() as nobody:
        for one in (server, nobody):
            one.bind(("127.0.0.1", 0))
        server.listen()
        threading.Thread(target=_hang_up, args=(server,), daemon=True).start()
        for name, one in (("a_server_that_hangs_up", server), ("a_server_that_is_not_there", nobody)):
            port = str(one.getsockname()[1])
            url = f"postgresql://owner:secret@127.0.0.1:{port}/shop"
            settings.write_text(f'store = "{url}"\n' + whole.replace("store =", "# store ="), "utf-8")
            for words in (("store", "migrate", "--url", url), ("runs", "list"), ("serve", "--port", "0")):
                row = _typed(f"{name}_{words[0]}", *words)
                yield replace(row, given=row.given.replace(port, "PORT"), says=row.says.replace(port, "PORT"))
    settings.write_text(whole, "utf-8")


def _hang_up(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            server.accept()[0].close()


def produced(folder: Path) -> Iterator[Row]:
    """The rows of operators, from the example that `contextos demo` makes in `folder`."""
    with working(folder):
        typed("demo", "--yes", "--keep", str(folder / "shop"))
        os.chdir(folder / "shop")
        _files()
        certificate(Path())
        for words in TENANTS:
            name = "_".join(word for word in words[:2] if word[0] != "-")
            yield _typed(f"tenant_{name}", *words, "--tenant", "tenant_acme_prd")
        yield from _wrong_files()
        for id_, words in COMMANDS:
            yield _typed(id_, *words)
        yield from _port()
        yield from _programs()
        yield from _sessions(folder / "deploys")
        shutil.copytree(".", folder / "other")
        os.chdir(folder / "other")
        yield from _settings()
        yield from _full_disk()
        yield from _servers()
