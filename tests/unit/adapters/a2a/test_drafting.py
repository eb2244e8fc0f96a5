"""The draft of an agent's adapter: every skill at its strictest, each left out with a reason or usable as it is."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.a2a.definitions import A2aConnection, SkillOperation, is_pinned
from contextos.adapters.a2a.drafting import card_url, draft_agent
from contextos.adapters.foreign.drafting import DraftRow
from contextos.errors import InvalidInput
from tests.servers.adapters import agent_adapter

URL = "https://x.example/.well-known/agent-card.json"
NAMED = A2aConnection(kind="a2a", url=URL, card_url=URL)
SPOKEN = {"url": "https://x.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
SAY: dict[str, Any] = {"id": "say", "name": "Say", "description": "Says a text.", "tags": []}


def card(*skills: dict[str, Any], **changed: Any) -> dict[str, Any]:
    modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
    return {"name": "Lab", "supportedInterfaces": [SPOKEN], **modes, "skills": list(skills or [SAY]), **changed}


def draft(*skills: dict[str, Any], reads: Any = (), **changed: Any) -> tuple[dict[str, Any], list[DraftRow]]:
    return draft_agent("lab", NAMED, card(*skills, **changed), reads)


def test_an_unknown_skill_is_drafted_at_its_strictest_and_can_be_used_as_it_is() -> None:
    file, [row] = draft()
    [capability] = file["definition"]["capabilities"]
    strictest = {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}
    assert strictest.items() <= capability.items()
    assert capability["idempotency"] == {"strategy": "none"}
    assert capability["description"] == "Says a text."
    assert (row.tool, row.capability, row.why) == ("say", "say", "unknown: at its strictest")
    described = agent_adapter(file).describe()
    assert (described.type, described.external, described.egress) == ("a2a", True, ("x.example:443",))
    operation = SkillOperation.model_validate(file["operations"]["say"])
    assert (operation.input, operation.output, is_pinned(operation, card())) == ("text", "text", True)


def test_a_read_is_recorded_as_stated() -> None:
    file, [row] = draft(reads=["say"])
    assert (row.kind, row.mode, row.why) == ("read", "network", "stated as a read")
    assert file["operations"]["say"]["stated_read"] is True
    agent_adapter(file)
    with pytest.raises(InvalidInput, match="no skill `other`"):
        draft(reads=["other"])


def test_a_skill_that_takes_json_alone_accepts_no_argument_until_a_person_writes_the_schema() -> None:
    file, [row] = draft(SAY | {"inputModes": ["application/json"]})
    assert file["operations"]["say"]["input"] == "data"
    assert file["definition"]["capabilities"][0]["input_schema"] == {"type": "object", "additionalProperties": False}
    assert "its schemas are to be written" in row.why
    agent_adapter(file)


def test_a_skill_that_answers_json_alone_has_a_note_and_one_that_says_nothing_is_taken_for_texts() -> None:
    _, [row] = draft(SAY | {"outputModes": ["application/json"]})
    assert "its schemas are to be written" in row.why
    file, [row] = draft(defaultInputModes=[], defaultOutputModes=7)
    assert (file["operations"]["say"]["input"], row.why) == ("text", "unknown: at its strictest")


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "images in": ({"inputModes": ["image/png"]}, "neither texts nor JSON"),
    "images out": ({"outputModes": ["image/png"]}, "neither texts nor JSON"),
    "no id": ({"id": ""}, "its id is empty"),
    "a name that is a number": ({"id": "say", "name": 7, "description": 7}, ""),
    "an api key": ({"securityRequirements": [{"schemes": {"key": {}}}]}, "not a bearer token"),
    "basic": ({"securityRequirements": [{"schemes": {"basic": {}}}]}, "not a bearer token"),
    "a scheme that is not there": ({"securityRequirements": [{"schemes": {"none": {}}}]}, "not a bearer token"),
    "a key and a token": ({"securityRequirements": [{"schemes": {"key": {}, "bearer": {}}}]}, "not a bearer token"),
    "a token": ({"securityRequirements": [{"schemes": {"bearer": {}}}]}, "--token-env"),
    "a login": ({"securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"login": {}}}]}, "--token-env"),
    "a token or nothing": ({"securityRequirements": [{"schemes": {"bearer": {}}}, {}]}, ""),
}
SCHEMES = {
    "key": {"apiKeySecurityScheme": {"name": "x"}},
    "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "login": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example"}},
}


@pytest.mark.parametrize("name", REASONS)
def test_a_skill_that_cannot_be_called_is_left_out_with_a_reason(name: str) -> None:
    changed, why = REASONS[name]
    _, rows = draft(SAY | changed, {"id": "fine", "name": "Fine"}, securitySchemes=SCHEMES)
    assert rows[1].capability == "fine"
    assert (rows[0].capability == "") == bool(why)
    assert why in rows[0].why


def test_a_token_meets_what_the_agent_asks_for() -> None:
    asked = {"securityRequirements": [{"schemes": {"bearer": {}}}], "securitySchemes": SCHEMES}
    with pytest.raises(InvalidInput, match="--token-env"):
        draft(**asked)
    named = NAMED.model_copy(update={"token_env": "LAB_TOKEN"})
    file, _ = draft_agent("lab", named, card(**asked), ())
    assert file["connection"]["token_env"] == "LAB_TOKEN"


def test_a_mode_with_a_parameter_is_that_mode() -> None:
    file, [row] = draft(SAY | {"inputModes": ["text/plain; charset=utf-8"], "outputModes": ["TEXT/PLAIN;a=b"]})
    assert file["operations"]["say"]["input"] == "text"
    assert "JSON" not in row.why


def test_names_that_become_the_same_stay_two_and_one_id_twice_is_left_out() -> None:
    file, rows = draft(*({"id": one} for one in ("a-b", "a.b", "c", "c")))
    assert [one["skill"] for one in file["operations"].values()] == ["a-b", "a.b"]
    one, other = file["operations"]
    assert one.startswith("a_b_")
    assert other.startswith("a_b_")
    assert [row.capability for row in rows] == [one, other, "", ""]


@pytest.mark.parametrize(
    "interfaces",
    [
        None,
        [],
        [7, {}],
        [SPOKEN | {"protocolBinding": "GRPC"}],
        [SPOKEN | {"protocolVersion": "0.3"}],
        [SPOKEN | {"url": "https://other.example/a2a"}],
        [SPOKEN | {"url": "https://x.example:8443/a2a"}],
        [SPOKEN | {"url": "http://x.example:443/a2a"}],
        [SPOKEN | {"url": "https://x.example/../a2a"}],
        [SPOKEN | {"url": 7}],
        [SPOKEN | {"tenant": 7}],
    ],
    ids=str,
)
def test_an_agent_without_an_interface_that_can_be_called_is_refused(interfaces: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        draft(supportedInterfaces=interfaces)
    assert error.value.problems[0].code == "no_interface"
    assert "`x.example:443`" in error.value.problems[0].detail


def test_the_first_interface_at_the_endpoint_of_the_card_is_the_one_that_is_called() -> None:
    elsewhere = SPOKEN | {"url": "https://other.example/a2a"}
    file, _ = draft(supportedInterfaces=[elsewhere, SPOKEN | {"tenant": "acme"}, SPOKEN])
    assert (file["connection"]["url"], file["connection"]["tenant"]) == ("https://x.example/a2a", "acme")


def test_an_agent_that_requires_an_extension_is_refused() -> None:
    extensions = [{"uri": "https://x.example/optional"}, {"uri": "https://x.example/paid", "required": True}]
    with pytest.raises(InvalidInput, match="paid"):
        draft(capabilities={"extensions": extensions})
    draft(capabilities={"extensions": extensions[:1]})


def test_an_agent_without_a_usable_skill_is_refused() -> None:
    with pytest.raises(InvalidInput) as error:
        draft({"id": ""})
    assert error.value.problems[0].code == "no_tools"


def test_a_url_is_that_of_the_agent_or_of_its_card() -> None:
    assert card_url("https://x.example") == card_url("https://x.example/") == URL
    assert card_url("https://x.example/shop") == "https://x.example/shop/.well-known/agent-card.json"
    assert card_url("https://x.example/card.json") == "https://x.example/card.json"
