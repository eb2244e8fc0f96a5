"""A pack's tools for a stock MCP client, in both revisions of the protocol: what it sees, what its calls come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.extension import ClientExtension, ResultClaim

from tests.mcp_face import (
    CHECK,
    EVAL,
    LOOKUP,
    ORDER,
    PAY,
    REFUND,
    TOKEN,
    answer,
    refund_workspace,
    refunds,
    serve_words,
    served,
    stdio,
    with_client,
)

FINISH = "finish_session"
REVISIONS = ["2026-07-28", "legacy"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return refund_workspace(tmp_path_factory.mktemp("face") / "shop")


async def read_first(client: Client) -> None:
    for name, args in ((LOOKUP, ORDER), (EVAL, CHECK)):
        result = await client.call_tool(name, args)
        assert not result.is_error, result.content


@pytest.mark.parametrize("mode", REVISIONS)
def test_a_client_sees_the_tools_of_its_session_with_the_schemas_of_the_registry(origin: Path, mode: str) -> None:
    async def play(client: Client) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == {LOOKUP, EVAL, REFUND, FINISH}
        assert set(tools[REFUND].input_schema["required"]) == {"order_id", "amount_inr", "currency"}
        assert tools[REFUND].input_schema["additionalProperties"] is False
        assert tools[REFUND].output_schema["anyOf"][0]["properties"]["transaction_id"]
        hints = {name: one.annotations for name, one in tools.items()}
        assert (hints[LOOKUP].read_only_hint, hints[REFUND].read_only_hint) == (True, False)

    with_client(stdio(origin, f"tools_{mode}"), play, mode=mode)


@pytest.mark.parametrize("mode", REVISIONS)
def test_what_is_refused_is_a_result_with_reasons_that_a_model_can_act_on(origin: Path, mode: str) -> None:
    async def play(client: Client) -> None:
        for name, args, said in (
            ("adp_payments__steal", {}, "is not a tool of this session; use one of adp_orders__lookup"),
            (REFUND, {"amount": 1}, "correct the arguments and call again"),
            (REFUND, PAY, "call `adp_orders.lookup` and `adp_policy.eval` first"),
            (FINISH, {"outcome": "paid"}, "use approved, denied or escalated"),
            (FINISH, {}, "use approved, denied or escalated"),
            (FINISH, {"outcome": "denied", "by": "me"}, "`by` is not an argument"),
        ):
            result = await client.call_tool(name, args)
            assert result.is_error
            assert result.structured_content["status"] == "refused"
            assert said in result.content[0].text
            assert "call id" not in result.content[0].text
            assert "Traceback" not in result.content[0].text

    with_client(stdio(origin, f"refused_{mode}"), play, mode=mode)


@pytest.mark.parametrize("mode", REVISIONS)
def test_a_call_that_waits_says_who_is_asked_and_the_same_call_has_the_answer_later(tmp_path: Path, mode: str) -> None:
    workspace = refund_workspace(tmp_path / "shop")

    async def play(client: Client) -> None:
        await read_first(client)
        for _ in range(2):
            waits = await client.call_tool(REFUND, PAY)
            assert waits.is_error
            said = waits.structured_content
            assert (said["status"], said["question"]["asks"]) == ("waiting", "finance_lead")
            assert said["question"]["arguments"] == PAY
            assert "contextos approvals approve" in waits.content[0].text
        other = await client.call_tool(LOOKUP, ORDER)
        assert (other.is_error, other.structured_content["this_call"]) == (True, False)
        assert refunds(workspace) == []
        assert answer(workspace) == 5
        paid = await client.call_tool(REFUND, PAY)
        assert not paid.is_error, paid.content
        again = await client.call_tool(REFUND, PAY)
        assert again.structured_content == paid.structured_content
        ended = await client.call_tool(FINISH, {"outcome": "approved"})
        assert (ended.structured_content["status"], ended.structured_content["outcome"]) == ("DECIDED", "approved")
        late = await client.call_tool(LOOKUP, ORDER)
        assert late.structured_content["ended"] is True
        assert (await client.call_tool(REFUND, PAY)).structured_content == paid.structured_content

    with_client(stdio(workspace), play, mode=mode)
    assert refunds(workspace) == [4200]


def test_an_outcome_that_the_journal_does_not_bear_out_is_escalated_with_its_reasons(tmp_path: Path) -> None:
    async def play(client: Client) -> None:
        await client.call_tool(LOOKUP, ORDER)
        assert "ended" in (await client.call_tool(REFUND, PAY)).structured_content
        ended = await client.call_tool(FINISH, {"outcome": "approved"})
        assert ended.structured_content["outcome"] == "escalated"
        reason = ended.structured_content["reasons"][0]
        assert reason["detail"]
        assert reason["remedy"]
        assert reason["detail"] in ended.content[0].text

    with_client(stdio(refund_workspace(tmp_path / "shop")), play)


def test_a_session_that_only_read_ends_well(tmp_path: Path) -> None:
    async def play(client: Client) -> None:
        await read_first(client)
        ended = await client.call_tool(FINISH, {"outcome": "approved"})
        assert (ended.structured_content["status"], ended.structured_content["outcome"]) == ("DECIDED", "approved")

    with_client(stdio(refund_workspace(tmp_path / "shop")), play)


def test_a_person_who_says_no_is_not_asked_again(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")

    async def play(client: Client) -> None:
        await read_first(client)
        await client.call_tool(REFUND, PAY)
        assert answer(workspace, verdict="deny") == 5
        for _ in range(2):
            denied = await client.call_tool(REFUND, PAY)
            assert denied.structured_content["reasons"][0]["code"] == "approval_denied"

    with_client(stdio(workspace), play)
    with_client(stdio(workspace), play_denied)


async def play_denied(client: Client) -> None:
    denied = await client.call_tool(REFUND, PAY)
    assert denied.structured_content["reasons"][0]["code"] == "approval_denied"


def test_a_read_on_purpose_reads_again_and_a_read_of_a_new_client_has_the_recorded_answer(origin: Path) -> None:
    async def play(client: Client) -> list[str]:
        return [(await client.call_tool(LOOKUP, ORDER)).meta["io.contextos/call"] for _ in range(2)]

    first, second = with_client(stdio(origin, "reads"), play)
    assert first != second
    assert with_client(stdio(origin, "reads"), play)[0] == second


class Task(types.Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str


class TaskState(types.Result):
    status: str
    result: dict[str, Any] | None = None


class TaskRequest(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


class Polling(ClientExtension):
    """A client that declares the tasks extension. It keeps what it was given, and asks once what became of it."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def claims(self) -> list[ResultClaim[Task]]:
        async def resolve(task: Task, _context: Any) -> types.CallToolResult:
            self.tasks.append(task)
            return types.CallToolResult(content=[], is_error=True)

        return [ResultClaim(result_type="task", model=Task, resolve=resolve)]


async def ask_about(client: Client, method: str, task_id: str) -> TaskState:
    request = TaskRequest(method=method, params={"taskId": task_id})
    return await client.session.send_request(request, TaskState)


def test_a_client_that_declares_no_tasks_learns_it(origin: Path) -> None:
    async def play(client: Client) -> None:
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            with pytest.raises(MCPError, match="make the same call again") as refused:
                await ask_about(client, method, "mcp_1")
            assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            needed = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
            assert refused.value.data == needed

    with_client(stdio(origin, "undeclared"), play, mode="2026-07-28")


@pytest.mark.parametrize(("named", "code"), [("mcp_1", types.INVALID_PARAMS), ("mcp_2", types.HEADER_MISMATCH)])
def test_a_header_that_names_another_task_is_refused(named: str, code: int, origin: Path, tmp_path: Path) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "mcp_1", "_meta": meta}}
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tasks/get",
        "Mcp-Name": named,
    }
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(TOKEN)
    words = serve_words(origin, f"header_{named}", "--http", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    with served(words) as address:
        answer = httpx2.post(f"http://{address}/mcp", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_with_the_tasks_extension_a_call_that_waits_is_a_task(tmp_path: Path) -> None:
    workspace, polling = refund_workspace(tmp_path / "shop"), Polling()

    async def begin(client: Client) -> None:
        await read_first(client)
        await client.call_tool(REFUND, PAY)
        for method in ("tasks/cancel", "tasks/update"):
            with pytest.raises(MCPError, match="neither answer nor cancel"):
                await ask_about(client, method, polling.tasks[0].task_id)
        with pytest.raises(MCPError, match="the session has no call"):
            await ask_about(client, "tasks/get", "mcp_99")

    with_client(stdio(workspace), begin, extensions=[polling])
    (task,) = polling.tasks
    assert task.status == "working"
    assert "finance_lead" in task.status_message

    async def later(client: Client) -> list[TaskState]:
        before = await ask_about(client, "tasks/get", task.task_id)
        assert answer(workspace) == 5
        return [before, await ask_about(client, "tasks/get", task.task_id)]

    before, after = with_client(stdio(workspace), later, extensions=[Polling()])
    assert (before.status, after.status) == ("working", "completed")
    assert after.result is not None
    assert after.result["isError"] is False, after.result
    assert refunds(workspace) == [4200]
