"""Plain loops over the SDKs of OpenAI and Anthropic, each with its own client over HTTP: a loop that is killed goes on
with one effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

import contextos
from contextos.contracts.ports.gates import Waiting
from contextos.frameworks.loops import anthropic_answers, anthropic_tools, openai_answers
from contextos.frameworks.offers import function_tools
from examples.frameworks import desk
from tests.frameworks.model_server import served
from tests.frameworks.runs import effects, in_a_session, in_the_docs, measured_governed, measured_twin, workspace

pytestmark = pytest.mark.slow

SDKS = {"openai": "OpenAI SDK", "anthropic": "Anthropic SDK"}
SCRIPT = [[(name, args, f"call_{number}")] for number, (name, args) in enumerate(desk.CALLS)]


@pytest.fixture
def scripted_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both SDKs speak with a loopback server, in this process and in those that it starts."""
    with served(SCRIPT) as url:
        for sdk in SDKS:
            monkeypatch.setenv(f"{sdk.upper()}_BASE_URL", url)
            monkeypatch.setenv(f"{sdk.upper()}_API_KEY", "sk-scripted")
        yield


@pytest.mark.parametrize("sdk", SDKS)
def test_a_loop_that_is_killed_goes_on_with_one_run_one_record_and_one_effect(
    sdk: str, tmp_path: Path, scripted_model: None
) -> None:
    measured = measured_governed(f"with_{sdk}", tmp_path)
    assert (measured.waiting, measured.after_effect) == (1, 1)
    row = measured.row(f"{SDKS[sdk]}, governed")
    print(row)
    assert in_the_docs(row)


@pytest.mark.soak
@pytest.mark.parametrize("sdk", SDKS)
def test_the_same_loop_without_contextos_rolls_back_twice(sdk: str, tmp_path: Path, scripted_model: None) -> None:
    row = measured_twin(f"tests.frameworks.twin_{sdk}", tmp_path).row(f"{SDKS[sdk]} alone")
    print(row)
    assert in_the_docs(row)


PROD, STAGING = ({"service": "api", "env": env} for env in ("prod", "staging"))
WRONG = [
    ("rollback", {"service": "billing", "env": "prod"}, "call_0"),
    ("pay_everybody", {}, "call_1"),
    ("ci_status", {"service": "api"}, "call_2"),
]


def test_one_message_of_several_calls_has_one_answer_for_each(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        broken = ("rollback", '{"service": "api"', "call_3")
        with served([[*WRONG, broken]]) as url:
            async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
                asked: list[Any] = [{"role": "user", "content": "go"}]
                tools: Any = function_tools(gate)
                first = await client.chat.completions.create(model="m", messages=asked, tools=tools)
                message = first.choices[0].message
                answers = await openai_answers(gate, message)
                assert isinstance(answers, list)
                assert answers == await openai_answers(gate, message.to_dict()), "asked again, it is the same"
                last = await client.chat.completions.create(
                    model="m", messages=[*asked, message, *answers], tools=tools
                )
                assert last.choices[0].message.content == "done"
        assert [one["tool_call_id"] for one in answers] == ["call_0", "call_1", "call_2", "call_3"]
        texts = [one["content"] for one in answers]
        assert "policy denies" in texts[0]
        assert "use one of deploy__ci_status, deploy__rollback" in texts[1]
        assert texts[2] == '{"commit":"0f1e2d3c","green":true}'
        assert texts[3].startswith("refused: the arguments are not JSON: ")

    in_a_session(workspace(tmp_path / "desk"), desk.decorated(), play)


def test_one_message_of_several_uses_has_one_message_of_results(tmp_path: Path) -> None:
    async def play(app: Any, gate: Any) -> None:
        with served([WRONG]) as url:
            async with AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
                asked: list[Any] = [{"role": "user", "content": "go"}]
                tools: Any = anthropic_tools(gate)
                message = await client.messages.create(model="m", max_tokens=9, messages=asked, tools=tools)
                answers: Any = await anthropic_answers(gate, message)
                assert answers == await anthropic_answers(gate, message.to_dict()), "asked again, it is the same"
                said: Any = {"role": "assistant", "content": message.content}
                last = await client.messages.create(
                    model="m", max_tokens=9, messages=[*asked, said, *answers], tools=tools
                )
                assert last.content[0].type == "text"
                assert await anthropic_answers(gate, last) == [], "there is no call"
        (results,) = answers
        assert results["role"] == "user"
        assert [one["is_error"] for one in results["content"]] == [True, True, False]
        assert "policy denies" in results["content"][0]["content"]

    in_a_session(workspace(tmp_path / "desk"), desk.decorated(), play)


def test_a_message_waits_as_a_whole_until_each_of_its_calls_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = workspace(tmp_path / "desk")
    monkeypatch.setenv("DESK_BOOKS", str(tmp_path / "books.log"))

    async def play(app: Any, gate: Any) -> None:
        calls = [("ci_status", {"service": "api"}), ("rollback", PROD), ("rollback", STAGING)]
        content = [
            {"type": "tool_use", "id": f"call_{number}", "name": f"deploy__{name}", "input": args}
            for number, (name, args) in enumerate(calls)
        ]
        message = {"role": "assistant", "content": content}
        for about, done in (("call_1", []), ("call_2", ["api prod"])):
            for _ in range(2):
                waiting = await anthropic_answers(gate, message)
                assert isinstance(waiting, Waiting)
                assert (waiting.waits_for, waiting.about) == ("approval", about)
                assert effects(tmp_path) == done
            await desk.approve(app, gate, directory)
        (results,) = await anthropic_answers(gate, message)
        assert [one["tool_use_id"] for one in results["content"]] == ["call_0", "call_1", "call_2"]
        assert effects(tmp_path) == ["api prod", "api staging"]

    in_a_session(directory, desk.decorated(), play)


def test_a_loop_without_an_event_loop_asks_through_the_application(tmp_path: Path) -> None:
    directory, deploy = workspace(tmp_path / "desk"), desk.decorated()
    with (
        served(SCRIPT) as url,
        OpenAI(base_url=url, api_key="k", max_retries=0) as client,
        contextos.open(directory, adapters=[deploy]) as app,
    ):
        gate = app.call(desk.session, app, deploy, directory, "thread_1")
        tools = function_tools(gate)
        first = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}], tools=tools)
        (answer,) = app.call(openai_answers, gate, first.choices[0].message)
    assert (answer["tool_call_id"], answer["content"]) == ("call_0", '{"commit":"0f1e2d3c","green":true}')
