"""The setting of an adapter: what it says of tenants fits the kind of its file."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings.calls import AdapterSetting, is_adapter_file
from contextos.workspace.settings.reading import check_value

OWN = {"acme": {"CRM_TOKEN": "ACME_CRM_TOKEN"}}


def _file(**more: Any) -> AdapterSetting:
    return AdapterSetting("adapters/crm.json", "sha256:0", **more)


@pytest.mark.parametrize("setting", [_file(), _file(tenants=OWN), _file(shared=True), AdapterSetting("a.py:b", "d")])
def test_a_setting_that_says_one_thing_is_taken(setting: AdapterSetting) -> None:
    check_value(AdapterSetting, setting, "/adapters/0")
    assert is_adapter_file(setting) is setting.path.endswith(".json")


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        (_file(tenants=["acme"]), "tenants"),
        (_file(tenants={"acme": "ACME"}), "tenants/acme"),
        (_file(tenants={"acme": {"CRM_TOKEN": ""}}), "tenants/acme/CRM_TOKEN"),
        (_file(shared="yes"), "shared"),
        (_file(tenants=OWN, shared=True), "shared"),
        (AdapterSetting("a.py:b", "d", tenants=OWN), "tenants"),
        (AdapterSetting("a.py:b", "d", shared=True), "shared"),
        (_file(files={"a.py": "d"}), "files"),
        (AdapterSetting("", "d"), "path"),
    ],
)
def test_what_contradicts_itself_names_its_place(setting: AdapterSetting, place: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        check_value(AdapterSetting, setting, "/adapters/0")
    assert refused.value.problems[0].pointer == f"/adapters/0/{place}"
