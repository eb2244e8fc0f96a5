"""What an author reads, when a pack, a bundle, a catalog, a directory, an adapter file, an agent or a tool is wrong."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contextos
from contextos.adapters.function.loading import load_function_adapters
from contextos.errors import ContextOSError
from tests.messages.rows import Row, typed, working

LINT = "contextos pack lint --adapters"

SHORT: list[tuple[str, str, str]] = [
    ("typo_at_the_root", "approver: oncall", "aprover: oncall"),
    ("typo_in_ask", "  - role: oncall", "  - roles: oncall"),
    ("typo_in_deny", "    because: a green", "    becuase: a green"),
    ("typo_in_bounds", "{max: 10}", "{maximum: 10}"),
    ("unknown_field", "approver: oncall", "colour: red"),
    ("field_of_the_whole_form", "approver: oncall", "pack_meta: {}"),
    ("javascript_true", "frozen == True", "frozen == true"),
    ("javascript_and", "customers > 20", "customers > 20 && args.env == 'prod'"),
    ("javascript_or", "customers > 20", "customers > 20 || args.env == 'prod'"),
    ("javascript_not", "when: evidence.impact.frozen == True", "when: '!evidence.impact.frozen'"),
    ("javascript_equals", "frozen == True", "frozen === True"),
    ("assignment", "frozen == True", "frozen = True"),
    ("sql_and", "customers > 20", "customers > 20 AND args.env == 'prod'"),
    ("null", "customers > 20", "customers == null"),
    ("smart_quotes", "customers > 20", "customers > 20 and args.env == “prod”"),
    ("text_without_quotes", "customers > 20", "customers > 20 and args.env == prod"),
    ("unclosed_text_in_a_condition", "customers > 20", 'customers > 20 and args.env == "prod'),
    ("unfinished_condition", "customers > 20", "customers >"),
    ("function_of_python", "evidence.impact.customers > 20", "len(args.env) > 3"),
    ("method_of_a_text", "evidence.impact.customers > 20", "args.env.startswith('p')"),
    ("number_with_commas", "customers > 20", "customers > 1,000"),
    ("typo_of_a_fact", "impact.customers > 20", "impact.custommers > 20"),
    ("typo_of_an_argument", "evidence.impact.customers > 20", "args.enviroment == 'prod'"),
    ("argument_of_another_tool", "evidence.impact.customers > 20", "args.replicas > 5"),
    ("argument_that_no_tool_has", "evidence.impact.customers > 20", "args.amount > 5"),
    ("another_type", "evidence.impact.customers > 20", "evidence.impact.customers > 'many'"),
    ("typo_of_a_tool", "tools: [rollback]\n    because", "tools: [rolback]\n    because"),
    ("tool_that_nobody_offers", "deploy.scale, deploy.rollback]", "deploy.scale, deploy.rollback, deploy.restart]"),
    ("role_that_nobody_has", "who: [deployer]", "who: [deployers]"),
    ("approver_that_nobody_is", "approver: oncall", "approver: on_call"),
    ("typo_of_a_tenant", "tenant: acme", "tenant: acmee"),
    ("version_of_two_parts", "version: 1.0.0", "version: 1.0"),
    ("version_with_a_letter", "version: 1.0.0", "version: v1.0.0"),
    ("version_is_missing", "version: 1.0.0\n", ""),
    ("list_for_a_mapping", "approver: oncall", "budget: [1, 2]"),
    ("mapping_for_a_list", "ask:\n  - role: oncall\n    when:", "ask:\n    role: oncall\n    when:"),
    ("text_for_a_list", "who: [deployer]", "who: deployer"),
    ("none_of_the_values", "approver: oncall", "approver: oncall\nmode: observed"),
    ("not_a_number", "{max: 10}", "{max: ten}"),
    ("timeout_too_long", "  - role: oncall", "  - role: oncall\n    timeout_s: 9999999"),
    ("enum_of_two_types", "{enum: [newsletter]}", "{enum: [newsletter, 5]}"),
    ("enum_with_no", "{enum: [newsletter]}", "{enum: [no, SE]}"),
    ("octal_of_yaml_1_1", "{max: 10}", "{max: 010}"),
    ("octal_of_yaml_1_2", "{max: 10}", "{max: 0o10}"),
    ("number_with_underscore", "{max: 10}", "{max: 1_000}"),
    ("yes_of_yaml_1_1", "service: {any: true}, env", "service: {any: yes}, env"),
    ("off_of_yaml_1_1", "approver: oncall", "approver: off"),
    ("time_of_yaml_1_1", "approver: oncall", "approver: oncall\nowner: 12:30"),
    ("date_of_yaml_1_1", "approver: oncall", "approver: oncall\nowner: 2026-01-01"),
    ("key_twice", "approver: oncall", "approver: oncall\napprover: lead"),
    ("tab", "  - role: oncall", "\t- role: oncall"),
    ("unclosed_quote", "approver: oncall", 'approver: "oncall'),
    ("unclosed_bracket", "who: [deployer]", "who: [deployer"),
    ("colon_in_a_text", "because: a green build stays", "because: a green build: stays"),
    ("anchor", "who: [deployer]", "who: &who [deployer]"),
    ("tag", "approver: oncall", "approver: !secret oncall"),
    ("merge_key", "{max: 10}", "{<<: {max: 10}}"),
    ("control_character", "approver: oncall", "approver: on\x07call"),
    ("escaped_quotes", "customers > 20", r"customers > 20 and args.env == \"pr\\\"od && x\" && 1"),
    ("escape_character", "nothing changes in", '"\\e[2Jnothing changes in"  # '),
    ("entry_that_never_counts", "  - role: oncall", "  - role: lead\n  - role: oncall"),
    ("bound_of_nothing", "{max: 10}", "{}"),
]
WHOLE: list[tuple[str, str, str]] = [
    ("whole_typo", '"safety_ceiling"', '"safety_cieling"'),
    ("whole_typo_of_a_gate", '"quorum": 1', '"quorom": 1'),
    ("whole_version", '"pack_version": "1.0.0"', '"pack_version": "1.0"'),
    ("whole_no_such_gate", '"requires_approval_gate": "GATE_ACME', '"requires_approval_gate": "GATE_ACNE'),
    ("whole_no_such_capability", '"rollback"', '"rolback"'),
    ("whole_no_json", '"pack_id": "acme.deploy",', '"pack_id": "acme.deploy"'),
    ("whole_key_twice", '"pack_id": "acme.deploy",', '"pack_id": "acme.deploy", "pack_id": "x",'),
    ("whole_no_such_step_tool", '"tool": "deploy.scale"', '"tool": "deploy.scal"'),
]
BUNDLE = {
    "version": "1.0.0",
    "tenant": "acme",
    "bundle": {
        "bundle_id": "POLICY_NIGHT",
        "priority": 1,
        "mode": "enforce",
        "policy_dsl": {
            "language": "jsonlogic",
            "rules": [
                {
                    "rule_id": "R_NIGHT",
                    "applies_to": {"capability": "deploy.rollback"},
                    "if": {"==": [{"var": "args.env"}, "prod"]},
                    "then": {"allow": False},
                    "rationale": "not at night",
                }
            ],
        },
    },
}
BUNDLES: list[tuple[str, str, str]] = [
    ("bundle_typo", '"rationale"', '"rational"'),
    ("bundle_operator", '"==": [', '"=": ['),
    ("bundle_tool", "deploy.rollback", "deploy.rolback"),
    ("bundle_fact", "args.env", "arg.env"),
    ("bundle_mode", '"mode": "enforce"', '"mode": "enforced"'),
]
CATALOG = {
    "catalog_id": "intent-catalog.deploy",
    "version": "1.0.0",
    "tenant": "acme",
    "intents": [
        {
            "intent_id": "acme.restart",
            "version": "1.0.0",
            "owner_role": "owner",
            "description": "",
            "risk_class": "delegated",
            "accepted_channels": [],
            "locale_support": [],
            "eligible_task_templates": ["acme.restart.task"],
        }
    ],
    "task_templates": [],
}
CATALOGS: list[tuple[str, str, str]] = [
    ("catalog_typo", '"owner_role"', '"owner_rule"'),
    ("catalog_value", '"delegated"', '"delegate"'),
]
PEOPLE: list[tuple[str, str, str]] = [
    ("directory_typo", '"approver_id": "olga"', '"aprover_id": "olga"'),
    ("directory_typo_of_a_list", '"approvers": [', '"aprovers": ['),
    ("directory_value", '"lifecycle": "active"', '"lifecycle": "activ"'),
    ("directory_urn", "agent:acme/deploy@1.0.0", "acme/deploy"),
    ("directory_no_json", '"scopes": [],', '"scopes": ['),
]
CAPABILITY = {
    "name": "say",
    "kind": "write",
    "risk_level": "write_irreversible",
    "approval_mode": "destructive",
    "input_schema": {"type": "object", "additionalProperties": False},
    "output_schema": {"type": "object", "additionalProperties": False, "properties": {"texts": {}, "omitted": {}}},
    "idempotency": {"strategy": "none"},
}
ADAPTER = {
    "format": "contextos.adapter_file.v1",
    "connection": {"kind": "mcp", "command": ["server"]},
    "definition": {"adapter_id": "lab", "type": "mcp", "version": "1", "capabilities": [CAPABILITY]},
    "operations": {"say": {"tool": "say", "digest": "sha256:" + "0" * 64, "output": "text"}},
}
ADAPTERS: list[tuple[str, str, str]] = [
    ("adapter_typo", '"approval_mode"', '"aproval_mode"'),
    ("adapter_value", '"destructive"', '"destructiv"'),
    ("adapter_format", "adapter_file.v1", "adapter_file.v2"),
    ("adapter_connection", '"command"', '"comand"'),
    ("adapter_operation", '"tool": "say"', '"tol": "say"'),
    ("adapter_no_operation", '"say": {\n   "tool"', '"speak": {\n   "tool"'),
]
TOOLS: list[tuple[str, str]] = [
    ("tool_without_brackets", '@contextos.read\ndef f(a: int) -> int:\n    """x"""'),
    ("tool_open_answer", '@R\ndef f(a: int) -> dict:\n    """x"""'),
    ("tool_answer_of_sets", '@R\ndef f(a: int) -> dict[str, set[float]]:\n    """x"""\n    return {}'),
    ("tool_any", '@R\ndef f(a: dict[str, Any]) -> int:\n    """x"""'),
    ("tool_no_hint", '@R\ndef f(a) -> int:\n    """x"""'),
    ("tool_no_answer", '@R\ndef f(a: int):\n    """x"""'),
    ("tool_star", '@R\ndef f(*a: int) -> int:\n    """x"""'),
    ("tool_two_stars", '@R\ndef f(**a: int) -> int:\n    """x"""'),
    ("tool_default", '@R\ndef f(a: int = "x") -> int:\n    """x"""'),
    ("tool_default_none", '@R\ndef f(a: int = None) -> int:\n    """x"""'),
    ("tool_default_list", '@R\ndef f(a: list[int] = []) -> int:\n    """x"""'),
    ("tool_no_docstring", "@R\ndef f(a: int) -> int:\n    return 1"),
    ("tool_positional", '@R\ndef f(a: int, /) -> int:\n    """x"""'),
    ("tool_set", '@R\ndef f(a: set[int]) -> int:\n    """x"""'),
    ("tool_unknown_type", '@R\ndef f(a: "Nope") -> int:\n    """x"""'),
    ("tool_timeout", '@contextos.read(timeout_s=500)\ndef f(a: int) -> int:\n    """x"""'),
    ("tool_name", '@contextos.read(name="my tool")\ndef f(a: int) -> int:\n    """x"""'),
    ("tool_no_risk", '@contextos.write()\ndef f(a: int) -> int:\n    """x"""'),
]
FILES: list[tuple[str, str]] = [
    ("file_syntax", "def f(:\n    pass\n"),
    ("file_name", "import contextos\n\nx = undefined\nTOOLS = []\n"),
    ("file_import", "import nosuchmodule\n"),
    ("file_tool", 'import contextos\n\n\n@contextos.read()\ndef f(a) -> int:\n    """x"""\n'),
    ("file_exception", 'import os\n\nraise ValueError("a secret")\n'),
    ("file_no_tools", "TOOLS = 3\n"),
]


def _edited(text: str, old: str, new: str) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, 1)


def _documents(base: str, name: str, edits: list[tuple[str, str, str]], *words: str) -> Iterator[Row]:
    file = Path(name)
    typed_words = words if name == "directory.json" else (*words, name)
    for id_, old, new in edits:
        file.write_text(_edited(base, old, new), "utf-8")
        yield Row(id_, "author", " ".join(["contextos", *typed_words]), f"`{old}` → `{new}`", typed(*typed_words))
    file.write_text(base, "utf-8")


def _packs(short: str) -> Iterator[Row]:
    lint = ("pack", "lint", "--adapters")
    yield from _documents(short, "pack.yaml", SHORT, *lint)
    several = short
    for old, new in (
        ("approver: oncall", "aprover: oncall"),
        ("frozen == True", "frozen == true"),
        ("{max: 10}", "{maximum: 10}"),
        ("customers > 20", "customers > 20 && x"),
    ):
        several = _edited(several, old, new)
    for id_, text, what in (
        ("four_faults", several, "four faults in one pack"),
        ("three_conditions", short.replace("== True", "== true").replace("> 20", "=> 20"), "three wrong conditions"),
        ("two_scalars", short.replace("{max: 10}", "{max: 010}").replace("any: true", "any: on"), "`010` and `on`"),
        ("byte_order_mark", "\ufeff" + short, "a byte order mark, which is allowed"),
        ("windows_lines", short.replace("\n", "\r\n").replace("approver", "aprover"), "CRLF, and `aprover`"),
        ("a_list", "- name: acme\n", "a list in the place of the pack"),
        ("empty", "", "an empty file"),
    ):
        Path("other.yaml").write_text(text, "utf-8", newline="")
        yield Row(id_, "author", LINT, what, typed(*lint, "other.yaml"))
    Path("other.yaml").write_bytes(b"name: acme\nsummary: caf\xe9\n")
    yield Row("not_utf8", "author", LINT, "a file in Latin-1", typed(*lint, "other.yaml"))
    whole = json.dumps(json.loads(typed("pack", "expand", "pack.yaml")), indent=1)
    yield from _documents(whole, "pack.json", WHOLE, *lint)
    yield from _documents(json.dumps(BUNDLE, indent=1), "bundle.json", BUNDLES, *lint)
    yield from _documents(json.dumps(CATALOG, indent=1), "catalog.json", CATALOGS, *lint)


def _tools() -> Iterator[Row]:
    for id_, code in TOOLS:
        source = f"import contextos\nfrom typing import Any\nR = contextos.read(integrity='trusted')\n{code}\n"
        says = "fine"
        try:
            exec(compile(source, "tools.py", "exec"), {"__name__": "tools"})
        except Exception as error:  # noqa: BLE001 - what Python prints
            says = "".join(traceback.format_exception_only(error))
        yield Row(id_, "author", "python tools.py", code, says)
    for id_, code in FILES:
        Path(f"{id_}.py").write_text(code, "utf-8")
        says = "fine"
        try:
            load_function_adapters(f"{id_}.py:TOOLS", None, root=Path.cwd())
        except ContextOSError as error:
            says = str(error)
        yield Row(id_, "author", "an adapter in contextos.toml", code, says)


def _python(short: str) -> Iterator[Row]:
    fields: dict[str, Any] = {"name": "acme", "version": "1.0", "tenant": "acme", "aprover": "x", "tools": []}
    try:
        contextos.pack(**fields)
    except ContextOSError as error:
        says = "".join(traceback.format_exception_only(error))
    yield Row("python_pack", "author", "contextos.pack(...)", json.dumps(fields), says)


def produced(folder: Path) -> Iterator[Row]:
    """The rows of authors, from a workspace that `contextos init` makes in `folder`."""
    with working(folder):
        typed("init", str(folder / "w"))
        os.chdir(folder / "w")
        short = Path("packs/deploy.yaml").read_text("utf-8")
        yield from _packs(short)
        yield from _tools()
        yield from _python(short)
        yield from _documents(json.dumps(ADAPTER, indent=1), "lab.json", ADAPTERS, "adapters", "publish")
        people = Path("directory.json").read_text("utf-8")
        yield from _documents(people, "directory.json", PEOPLE, "pack", "lint", "--adapters", "pack.yaml")
