"""`AgentConnection`: the requests of one call to an A2A agent, with every byte sent by `OutboundClient`.

The official client of A2A 1 uses a transport of this runtime. A request goes to the URL of the adapter file and to no
other, whatever a card says. An answer has to be I-JSON within the limits, and the JSON-RPC response to this request. An
error that an agent states becomes an exception without its text before the SDK reads it, because the SDK puts such
texts into the messages of its exceptions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import httpx
from a2a.client import ClientCallContext, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import (
    AgentCard,
    AgentInterface,
    Artifact,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from contextos.adapters.a2a.definitions import A2aConnection, SkillOperation
from contextos.adapters.a2a.tasks import (
    REFUSED_CALLERS,
    AgentAnswer,
    AgentRefusal,
    BadAnswer,
    UnreadableTask,
    says_done,
)
from contextos.adapters.foreign.refused_json import is_whole, read_refused, says_twice
from contextos.adapters.outbound import (
    UNSENT_HEADERS,
    AnswerTooLarge,
    OutboundClient,
    OutboundRequest,
    OutboundResponse,
)
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput, LostReply, MalformedJson, Problem, Unavailable

AGENT_TIMEOUT_S: Final = 120
MAX_SKILLS: Final = 1_000
HOP_EXTENSION: Final = "urn:contextos:a2a:hop-claim:v1"
"""The A2A extension that puts a signed claim of the caller's identity into the metadata of a message."""
EXTENSIONS_HEADER: Final = "a2a-extensions"
STATE_PREFIX: Final = "TASK_STATE_"
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "data": "application/json",
    "structured": "application/json",
    "text": "text/plain",
}
"""The media type of each form of an input and an output."""


class AgentConnection:
    """The connection to one agent. Its token is in `environment`, or is the `access_token` issued for the call. `trace`
    has the headers of the caller's trace.

    Raises:
        Unavailable: a token is needed and absent.
    """

    def __init__(
        self, named: A2aConnection, environment: Mapping[str, str], trace: Mapping[str, str], access_token: str = ""
    ) -> None:
        self._config = named
        self._headers = _authorization(named, environment, access_token)
        self._transport = _OutboundTransport(named)
        interface = AgentInterface(
            url=named.url,
            protocol_binding=TransportProtocol.JSONRPC,
            protocol_version=PROTOCOL_VERSION_1_0,
            tenant=named.tenant,
        )
        http = httpx.AsyncClient(transport=self._transport, trust_env=False, headers=self._headers)
        config = ClientConfig(streaming=False, polling=True, httpx_client=http)
        self._client = ClientFactory(config).create(AgentCard(supported_interfaces=[interface]))
        self._trace = {**trace, **({EXTENSIONS_HEADER: HOP_EXTENSION} if named.hop_claim else {})}
        self._context = ClientCallContext(service_parameters=self._trace)

    async def card(self) -> dict[str, Any]:
        """Return the card of the agent as it wrote it.

        Raises:
            Unavailable: the agent sends no card, or what it sends is not a card of at most `MAX_SKILLS` skills.
        """
        endpoint = self._config.endpoint()
        headers = {"accept": "application/json", **self._trace, **self._headers}
        request = OutboundRequest("GET", self._config.card_url, headers)
        try:
            answer = await self._transport.exchange(request)
            card = loads(answer.body) if answer.status == 200 else None
        except LostReply:
            raise Unavailable(endpoint, "it does not send its card whole and within the limits") from None
        except InvalidInput:
            card = None
        if not isinstance(card, dict) or not _are_objects(card.get("skills")):
            raise Unavailable(endpoint, "it does not send the card of an agent", remedy="check the URL and the token")
        if len(card["skills"]) > MAX_SKILLS:
            raise Unavailable(endpoint, f"its card has more than {MAX_SKILLS} skills", remedy="use an agent with fewer")
        return card

    async def send(self, request: SendMessageRequest) -> AgentAnswer:
        """Send a message, and return the first answer."""
        [response] = [item async for item in self._client.send_message(request, context=self._context)]
        if response.HasField("task"):
            return _task_answer(response.task)
        return AgentAnswer("", response.message.context_id, "completed", _part_objects(response.message.parts))

    async def task(self, task_id: str) -> AgentAnswer:
        """Return the current state of a task."""
        request = GetTaskRequest(id=task_id, history_length=0)
        return _task_answer(await self._client.get_task(request, context=self._context))

    async def only_task(self, context_id: str) -> AgentAnswer:
        """Return the one task of a context.

        Raises:
            BadAnswer: the agent lists none, several, or one of another context.
        """
        request = ListTasksRequest(context_id=context_id, page_size=2, history_length=0, include_artifacts=True)
        page = await self._client.list_tasks(request, context=self._context)
        if len(page.tasks) != 1 or page.next_page_token:
            raise BadAnswer("the agent does not list exactly one task of this call")
        answer = _task_answer(page.tasks[0])
        if answer.context_id != context_id:
            raise BadAnswer("the agent listed a task of another call")
        return answer


def message_of(
    operation: SkillOperation, args: Mapping[str, Any], message_id: str, context_id: str | None, hop: str = ""
) -> SendMessageRequest:
    """Return the message that asks for a skill. `hop` is the signed claim of the caller's identity, or "". Raises
    whatever the SDK raises for arguments that fit into no message.
    """
    form = MEDIA_TYPES[operation.input]
    part = new_text_part(args["text"], form) if operation.input == "text" else new_data_part(dict(args), form)
    message = Message(message_id=message_id, context_id=context_id, role=Role.ROLE_USER, parts=[part])
    message.metadata.update({"skillId": operation.skill} | ({HOP_EXTENSION: hop} if hop else {}))
    message.extensions.extend([HOP_EXTENSION] if hop else [])
    configuration = SendMessageConfiguration(accepted_output_modes=[MEDIA_TYPES[operation.output]], history_length=0)
    return SendMessageRequest(message=message, configuration=configuration)


class _OutboundTransport(httpx.AsyncBaseTransport):
    """The requests of the SDK, sent by `OutboundClient`: checked addresses, no redirects, whole and bounded bodies."""

    def __init__(self, config: A2aConnection) -> None:
        self._endpoint = config.endpoint()
        self._client = OutboundClient(internal=[self._endpoint] if config.internal else [])

    async def exchange(self, request: OutboundRequest) -> OutboundResponse:
        """Send a request. Raises `Unavailable` (nothing was sent) or `LostReply`."""
        try:
            return await self._client.send(request, egress=[self._endpoint], timeout_s=AGENT_TIMEOUT_S)
        except InvalidInput as refused:
            raise Unavailable(self._endpoint, refused.problems[0].detail) from None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = loads(await request.aread())
        headers = {name: value for name, value in request.headers.items() if name not in UNSENT_HEADERS}
        # A number of protobuf is a double: the canonical form writes 4200 and not 4200.0.
        try:
            answer = await self.exchange(OutboundRequest("POST", str(request.url), headers, canonical(call)))
        except AnswerTooLarge as large:
            raise UnreadableTask(Problem("", "too_large", "it has more bytes than are read")) from large
        if answer.status in REFUSED_CALLERS:
            raise AgentRefusal(answer.status, over_http=True)
        try:
            body = loads(answer.body) if answer.status == 200 else None
        except MalformedJson as malformed:
            parsed = read_refused(answer.body)
            is_own = (
                isinstance(parsed, dict) and parsed.get("id") == call["id"] and not says_twice(malformed.problems, 4)
            )
            done = is_own and says_done(parsed.get("result"))
            raise UnreadableTask(malformed.problems[0], done=done, whole=is_whole(answer.body)) from None
        if not isinstance(body, dict) or (body.get("jsonrpc"), body.get("id")) != ("2.0", call["id"]):
            raise BadAnswer("the agent did not answer this request")
        if (error := body.get("error")) is not None:
            code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
            raise AgentRefusal(code if isinstance(code, int) else 0, text if isinstance(text, str) else "")
        return httpx.Response(200, json=body)


def _authorization(config: A2aConnection, environment: Mapping[str, str], access_token: str) -> dict[str, str]:
    if config.audience is not None:
        if not access_token:
            raise Unavailable(config.endpoint(), "it is asked for a user only, with a token that is issued for a call")
        return {"authorization": f"Bearer {access_token}"}
    if config.token_env is None:
        return {}
    if config.token_env not in environment:
        raise Unavailable(f"${config.token_env}", "the environment has no such variable", remedy="set it")
    return {"authorization": f"Bearer {environment[config.token_env]}"}


def _task_answer(task: Task) -> AgentAnswer:
    if not task.id:
        raise BadAnswer("the agent answered with a task without an id")
    return AgentAnswer(
        task_id=task.id,
        context_id=task.context_id,
        state=TaskState.Name(task.status.state).removeprefix(STATE_PREFIX).lower(),
        parts=[part for artifact in task.artifacts for part in _part_objects(artifact.parts)],
        said=_part_objects(task.status.message.parts),
        artifacts=[row for artifact in task.artifacts for part in artifact.parts for row in _contents(artifact, part)],
    )


def _contents(artifact: Artifact, part: Part) -> Iterator[dict[str, Any]]:
    """Yield the content of a part of an artifact, if it has content. A URL is not content: nobody fetches it."""
    name, raw = part.filename or artifact.name or artifact.artifact_id, part.HasField("raw")
    values = {"text": base64.b64encode(part.raw).decode()} if raw else _part_objects([part])[0]
    media_type = part.media_type or ("application/json" if "data" in values else "")
    for content in values.values():
        yield {"name": name, "media_type": media_type, "content": content, "raw": raw}


def _part_objects(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return the parts as objects with `text`, with `data`, or with neither. A whole number in `data` is an integer."""
    objects: list[dict[str, Any]] = []
    for part in parts:
        if part.HasField("data"):
            objects.append({"data": loads(canonical(get_data_parts([part])[0]))})
        else:
            objects.append({"text": part.text} if part.HasField("text") else {})
    return objects


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
