"""Settings are checked at start: an error names the setting and the remedy, and nothing starts."""

from __future__ import annotations

import ast
import asyncio
import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.setting_types import SettingTable, settings_of
from contextos.errors import InvalidSettings, Problem
from contextos.runtime.environment import RunLimits
from contextos.workspace import open_app
from contextos.workspace.settings import SETTINGS_FILE, UNSAFE_SETTINGS, Settings, check_settings
from contextos.workspace.settings.calls import AdapterSetting
from contextos.workspace.settings.reading import check_value, read_table

SRC = Path(contextos.__file__).parent


def read(path: Path, text: str) -> Settings:
    (path / SETTINGS_FILE).write_text(text, encoding="utf-8")
    return Settings.read(path)


def problem(path: Path, text: str) -> Problem:
    with pytest.raises(InvalidSettings) as raised:
        read(path, text)
    (found,) = raised.value.problems
    assert found.remedy
    return found


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Settings(tmp_path)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = """
        store = "s.db"
        packs = ["a", "b"]
        policies = [["tenant", "POLICY_X@1.0.0"]]
        unsafe = ["unsafe_local_keys"]
        lease_ttl_s = 60
        [[adapters]]
        path = "shop.py:make"
        digest = "sha256:00"
        [limits]
        max_cost_cents = 12.5
        max_replan_attempts = 0
        [pressure]
        max_turns = 9
        [redaction]
        tenant_a = ["email", "pan"]
    """
    assert read(tmp_path, text) == Settings(
        tmp_path,
        store="s.db",
        packs=("a", "b"),
        policies=(("tenant", "POLICY_X@1.0.0"),),
        unsafe=("unsafe_local_keys",),
        lease_ttl_s=60,
        adapters=(AdapterSetting("shop.py:make", "sha256:00"),),
        limits=RunLimits(max_cost_cents=12.5, max_replan_attempts=0),
        pressure=AdmissionLimits(max_turns=9),
        redaction={"tenant_a": ("email", "pan")},
    )


@pytest.mark.parametrize("profile", ["embedded", "service"])
def test_without_an_unsafe_line_no_development_substitute_is_allowed(tmp_path: Path, profile: str) -> None:
    settings = read(tmp_path, f'profile = "{profile}"\nenvironment = "prod"')
    with pytest.raises(InvalidSettings, match="a directory file is a development stand-in") as raised:
        asyncio.run(open_app(settings))
    assert raised.value.problems[0].code == "unsafe_not_allowed"


@pytest.mark.parametrize("name", UNSAFE_SETTINGS)
def test_a_service_refuses_development_substitutes(tmp_path: Path, name: str) -> None:
    said = problem(tmp_path, f'profile = "service"\nenvironment = "prod"\nunsafe = ["{name}"]')
    assert (said.pointer, said.code) == ("/unsafe", "unsafe_not_allowed")


WRONG = [
    ("lease_ttl_s = -1", "/lease_ttl_s"),
    ("lease_ttl_s = 0", "/lease_ttl_s"),
    ('lease_ttl_s = "x"', "/lease_ttl_s"),
    ("lease_ttl_s = true", "/lease_ttl_s"),
    ("lease_ttl_s = 1.5", "/lease_ttl_s"),
    ('profile = "prod"', "/profile"),
    ("profile = 7", "/profile"),
    ('environment = "production"', "/environment"),
    ('environment = "embedded"', "/environment"),
    ("environment = 7", "/environment"),
    ("environment = []", "/environment"),
    ('profile = "service"', "/environment"),
    ("store = 7", "/store"),
    ('store = ""', "/store"),
    ('packs = "packs"', "/packs"),
    ("packs = [7]", "/packs/0"),
    ('unsafe = "unsafe_local_keys"', "/unsafe"),
    ("unsafe = [7]", "/unsafe/0"),
    ('unsafe = ["unsafe_all"]', "/unsafe/0"),
    ("policies = 7", "/policies"),
    ("policies = [7]", "/policies/0"),
    ('policies = [["tenant"]]', "/policies/0"),
    ('policies = [["pack", "P@1.0.0"]]', "/policies/0"),
    ('policies = [["tenant", 7]]', "/policies/0"),
    ('policies = [[["a"], "P@1.0.0"]]', "/policies/0"),
    ("adapters = 7", "/adapters"),
    ("adapters = [7]", "/adapters/0"),
    ('adapters = [{path = "x"}]', "/adapters/0/digest"),
    ('adapters = [{path = 7, digest = "x"}]', "/adapters/0/path"),
    ('adapters = [{path = "p", digest = "sha256:00", url = "x"}]', "/adapters/0/url"),
    ('queue = "postgresql://q@h/q"', "/queue"),
    ('redaction = ["email"]', "/redaction"),
    ('redaction = {tenant_a = "email"}', "/redaction/tenant_a"),
    ('redaction = {tenant_a = ["emails"]}', "/redaction/tenant_a/0"),
    ("redaction = {tenant_a = [[]]}", "/redaction/tenant_a/0"),
    ("driving = 7", "/driving"),
    ("driving = {max_drives = 0}", "/driving/max_drives"),
    ("driving = {drives = 1}", "/driving/drives"),
    ("driving = {rate_per_tenant = 5}", "/driving/rate_per_tenant"),
    ("limits = 7", "/limits"),
    ("limits = {max_tokens = 7}", "/limits/max_tokens"),
    ('stores = "x"', "/stores"),
    ("limits = {max_cost_cents = 0.12345}", "/limits/max_cost_cents"),
    ('workspace = "/"', "/workspace"),
    ("limits = {claim_ttl_s = 3601}", "/limits/claim_ttl_s"),
    ("limits = {wall_clock_ms = 0}", "/limits/wall_clock_ms"),
    ("pressure = 7", "/pressure"),
    ("pressure = {max_turns = 1.5}", "/pressure/max_turns"),
    ("pressure = {turns = 7}", "/pressure/turns"),
    ("store =", ""),
]


@pytest.mark.parametrize(("text", "pointer"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, pointer: str) -> None:
    assert problem(tmp_path, text).pointer == pointer


@pytest.mark.parametrize("name", [one.name for one in fields(RunLimits)])
@pytest.mark.parametrize("value", ['"a"', "nan", "inf", "-1", "true", "[]", "9007199254740993"])
def test_no_limit_is_anything_but_a_number_in_bounds(tmp_path: Path, name: str, value: str) -> None:
    assert problem(tmp_path, f"[limits]\n{name} = {value}").pointer == f"/limits/{name}"


@pytest.mark.parametrize("name", [one.name for one in fields(AdmissionLimits)])
@pytest.mark.parametrize("value", ['"a"', "inf", "0", "-1", "true", "9007199254740993"])
def test_no_bound_of_a_process_can_be_taken_off(tmp_path: Path, name: str, value: str) -> None:
    assert problem(tmp_path, f"[pressure]\n{name} = {value}").pointer == f"/pressure/{name}"


def test_the_defaults_are_accepted_and_lists_become_tuples() -> None:
    assert check_settings(Settings(Path())) == Settings(Path())
    assert check_settings(Settings(Path(), packs=["a"])).packs == ("a",)  # type: ignore[arg-type]


TABLES = [one for one in SettingTable.__subclasses__() if one.__module__.startswith("contextos.")]
BY_GETATTR = {"bundle_url", "bundle_file"}
"""The settings that `workspace/logins/issuers.py` reads by a name that it makes."""


def attributes_read(source: str) -> set[str]:
    """The attributes that a module reads, but not in the functions that look for faults of settings."""
    nodes = list(ast.walk(ast.parse(source)))
    checks = [one for one in nodes if isinstance(one, ast.FunctionDef) and one.name.endswith("faults")]
    of_checks = {node for check in checks for node in ast.walk(check)}
    reads = [one for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)]
    return {one.attr for one in reads if one not in of_checks}


def test_a_setting_that_nothing_reads_is_not_accepted() -> None:
    """By its name alone, so a setting that is named as another attribute passes."""
    read = set().union(*(attributes_read(one.read_text("utf-8")) for one in SRC.rglob("*.py"))) | BY_GETATTR
    settings = {one.name: table.__name__ for table in TABLES for one in fields(table)}  # type: ignore[arg-type]
    assert {name: table for name, table in settings.items() if name not in read} == {}
    planted = "class A:\n def faults(self): yield self.unread\n def use(self): self.stored = self.read"
    assert attributes_read(planted) == {"read"}


ODD = (
    True,
    7,
    -1,
    10**5000,
    1.5,
    float("nan"),
    "",
    "hunter2",
    "a\0b",
    b"x",
    None,
    [],
    {},
    [[]],
    [{}],
    {"": 1},
    {7: {}},
)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("of_file", [True, False])
def test_no_value_of_a_setting_ends_in_a_traceback_or_is_quoted(table: Any, of_file: bool, tmp_path: Path) -> None:
    class Answer:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"nothing is asked of another object, and `{name}` was")

    for one, meaning in settings_of(table):
        assert meaning
        for value in (*ODD, Answer()):
            try:
                if of_file:
                    read_table(table, "", {one.name: copy.copy(value)}, {"workspace": tmp_path})
                else:
                    required = {each.name: "" for each in fields(table) if each.default is each.default_factory}
                    check_value(table, table(**required | {one.name: value}))
            except InvalidSettings as refused:
                for fault in refused.problems:
                    assert fault.detail
                    assert fault.remedy
                    assert "hunter2" not in f"{fault.detail}{fault.remedy}"


@pytest.mark.parametrize(
    "change",
    [
        {"workspace": "here"},
        {"lease_ttl_s": float("nan")},
        {"limits": RunLimits(max_tool_calls="a")},
        {"limits": {}},  # type: ignore[arg-type]
        {"limits": RunLimits(max_cost_cents=float("nan"))},
        {"adapters": ("shop.py:make",)},
        {"pressure": AdmissionLimits(max_callers=0)},
        {"pressure": RunLimits()},
        {"policies": ("tenant",)},
    ],
)
def test_settings_that_were_built_by_hand_are_held_to_the_same(tmp_path: Path, change: dict[str, Any]) -> None:
    whole = Settings(tmp_path, unsafe=("unsafe_local_directory", "unsafe_local_keys"))
    with pytest.raises(InvalidSettings) as raised:
        asyncio.run(open_app(replace(whole, **change)))
    assert raised.value.problems[0].pointer.startswith(f"/{next(iter(change))}")


@pytest.mark.parametrize("name", ["egress", "redaction"])
@pytest.mark.parametrize(
    "value", [None, ["a"], {"t": None}, {"t": "classified"}, {"t": [7]}, {7: ()}], ids=lambda value: str(value)
)
def test_a_table_by_tenant_that_was_built_by_hand_is_held_to_the_same(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(InvalidSettings) as refused:
        check_settings(replace(Settings(tmp_path), **{name: value}))
    assert refused.value.problems[0].pointer.startswith(f"/{name}")


def test_a_password_in_a_url_is_in_no_representation(tmp_path: Path) -> None:
    settings = Settings(tmp_path, store="postgresql://app:hunter2@db/x", witness="https://app:hunter2@sink.example/x")
    check_settings(settings)
    assert "hunter2" not in repr(settings)
