"""`OpenApiAdapter`: the `Adapter` port over an HTTP API, as an adapter file describes it.

The status and media type of a successful answer are checked here, and its schema by the Tool Gateway. A 4xx is a
business error. A 429 means that nothing happened (`Unavailable`), and so does a 503 with `Retry-After` to a read. After
any other answer nobody knows whether a write happened (`LostReply`); a read changes nothing (`Unavailable`).
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from contextos.adapters.foreign.adapter_file import unlisted_member, with_auth
from contextos.adapters.foreign.refused_json import is_whole
from contextos.adapters.foreign.replies import unreadable_answer
from contextos.adapters.foreign.server_adapter import ServerAdapter
from contextos.adapters.foreign.texts import plain_text
from contextos.adapters.openapi.calls import OpenApiConnection, OpenApiOperation, PolledOperation
from contextos.adapters.openapi.requests import build_request
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.adapters.outbound import AnswerTooLarge, OutboundClient, OutboundRequest, OutboundResponse, destination
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.pointer import pointer, resolve_pointer
from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.tool import (
    AdapterDefinition,
    AdapterReply,
    CallContext,
    CapabilityDefinition,
    ToolError,
)
from contextos.errors import InvalidInput, InvalidSettings, LostReply, Overloaded, Problem, Unavailable

MAX_ERROR_CHARS: Final = 2_000
MAX_RETRY_AFTER_S: Final = 3_600
DEFAULT_POLL_S: Final = 5
_OWN_HEADERS: Final = frozenset(("accept", "authorization", "content-type", "cookie", "traceparent", "tracestate"))
_TOO_LARGE: Final = Problem("", "too_large", "it has more bytes than are read")
_NO_OBJECT: Final = Problem("", "no_object", "it is not an object")
_SECONDS: Final = re.compile(r"[0-9]{1,6}")


class OpenApiAdapter(ServerAdapter[OpenApiOperation]):
    """The capabilities of `definition`, each called as `operations` says.

    `client` sends the requests; without one, a client is made that allows the connection's own endpoint.

    Raises:
        InvalidSettings: a capability has no operation, or declares something that its operation cannot do.
    """

    def __init__(
        self,
        connection: OpenApiConnection,
        definition: AdapterDefinition,
        operations: Mapping[str, OpenApiOperation],
        credentials: ConnectionSecrets,
        *,
        client: OutboundClient | None = None,
    ) -> None:
        _refuse_misfit(connection, definition, operations)
        modes = {name: credentials.auth(operation.credentials) for name, operation in operations.items()}
        super().__init__(with_auth(definition, modes), operations)
        self._server, self._credentials = connection.server, credentials
        internal = [destination(connection.server).endpoint] if connection.internal else []
        self._client = client or OutboundClient(internal=internal)

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Send the request of a capability.

        Raises:
            Unavailable: nothing happened; `Overloaded` if it was too late to send.
            LostReply: it may have happened.
        """
        operation, declaration = self._find_operation(capability)
        credentials = self._credentials.for_call(context.access_token)
        if credentials.lacks(operation.credentials):
            raise Unavailable(self._definition.adapter_id, "no credential was issued for this call")
        try:
            request = build_request(
                self._server,
                operation,
                args,
                credentials,
                idempotency_key=context.idempotency_key,
                trace=context.headers(),
            )
            if context.is_late():
                raise Overloaded(self._definition.adapter_id, "its time was over before it was sent")
            response = await self._client.send(request, egress=context.egress, timeout_s=context.timeout_ms / 1000)
        except InvalidInput as refused:
            problem = refused.problems[0]
            error = ToolError(code=problem.code, message=problem.detail, pointer=problem.pointer, remedy=problem.remedy)
            return AdapterReply(error=error)
        except AnswerTooLarge as large:
            if _answer_kind(operation, large.status) is None:
                return self._reply(declaration, operation, OutboundResponse(large.status, {}, b""), credentials.redact)
            return unreadable_answer(_TOO_LARGE, declaration, credentials.redact, final=True)
        except LostReply as lost:
            raise self._uncertain(declaration, str(lost)) from None
        if operation.polled is not None and response.status == 202:
            try:
                return self._running_reply(operation.polled, request.url, None, response, credentials)
            except LostReply as lost:
                lost.accepted = True
                raise
        return self._reply(declaration, operation, response, credentials.redact)

    async def lookup(self, capability: str, _idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """Send one GET to the URL of the running operation (`context.operation`). None: the server has no record of it.

        Raises:
            LostReply: the call has no such URL, because an API that only has a document cannot be asked what a key did;
                or the answer does not say what became of the operation.
        """
        declaration, operation, url = self._declared[capability], self._operations[capability], context.operation
        polled, credentials = operation.polled, self._credentials.for_call(context.access_token)
        if url is None or polled is None or credentials.lacks(operation.credentials):
            raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")
        headers = {**context.headers(), "Accept": "*/*", **credentials.placed(operation.credentials).headers}
        request = OutboundRequest("GET", url, headers)
        try:
            response = await self._client.send(request, egress=context.egress, timeout_s=context.timeout_ms / 1000)
        except AnswerTooLarge as large:
            # The state in the body is not read either.
            if polled.state is not None or large.status == 202 or _answer_kind(operation, large.status) is None:
                raise
            return unreadable_answer(_TOO_LARGE, declaration, credentials.redact, final=True)
        if response.status == 202:
            return self._running_reply(polled, url, url, response, credentials)
        if response.status in (404, 410):
            return None
        if not 200 <= response.status < 300:
            raise LostReply(f"the question about its operation was answered with {response.status}")
        if polled.state is not None:
            try:
                state = resolve_pointer(loads(response.body), polled.state)
            except InvalidInput:
                state = None
            if not isinstance(state, str):
                raise LostReply(f"the answer about its operation has no text at `{polled.state}`")
            if state in polled.running:
                return AdapterReply(operation=url, retry_after_s=_poll_s(response))
            if state in polled.failed:
                error = ToolError(code="operation_failed", message=f"the server says that it is `{state}`")
                return AdapterReply(error=error, cost_cents=declaration.cost_cents)
            if state not in polled.done:
                raise LostReply(
                    f"the state of its operation at `{polled.state}` is not one that the adapter file lists"
                )
        return self._reply(declaration, operation, response, credentials.redact)

    def _running_reply(
        self,
        polled: PolledOperation,
        base_url: str,
        fallback_url: str | None,
        response: OutboundResponse,
        credentials: ConnectionSecrets,
    ) -> AdapterReply:
        """Return the reply of a write that the server accepted with a 202. `fallback_url` is used if the header has no
        URL. Raises `LostReply` if there is no URL at this server to ask.
        """
        location = response.headers.get(polled.header, fallback_url)
        try:
            url = urljoin(base_url, location or "")
            target, server = destination(url), destination(self._server)
        except (InvalidInput, ValueError):
            raise LostReply("it was accepted, and no plain URL says where to ask about it") from None
        if (
            location is None
            or (target.scheme, target.endpoint) != (server.scheme, server.endpoint)
            or credentials.redact(url) != url
        ):
            raise LostReply(
                "it was accepted, and no URL of the same server without a secret says where to ask about it"
            )
        if not polled.query and "?" in url:
            raise LostReply("it was accepted, and the URL to ask at has a query, which `polled` does not allow")
        return AdapterReply(operation=url, retry_after_s=_poll_s(response))

    def _reply(
        self,
        declaration: CapabilityDefinition,
        operation: OpenApiOperation,
        response: OutboundResponse,
        redact: Callable[[Any], Any],
    ) -> AdapterReply:
        status = response.status
        if 400 <= status < 500 and status not in (408, 429):
            return AdapterReply(error=_business_error(response, redact), cost_cents=declaration.cost_cents)
        retry_after = response.headers.get("retry-after", "")
        # A proxy can answer 503 after the server behind it acted.
        if status == 429 or (status == 503 and retry_after and declaration.kind == "read"):
            seconds = min(int(retry_after), MAX_RETRY_AFTER_S) if _SECONDS.fullmatch(retry_after) else 1
            detail = f"`{declaration.name}` was answered with {status}, before it did anything"
            raise Unavailable(self._definition.adapter_id, detail, retry_after_ms=max(seconds, 1) * 1000)
        kind = _answer_kind(operation, status)
        if kind is None:
            raise self._uncertain(
                declaration, f"`{declaration.name}` was answered with {status}, which is not declared"
            )
        output: dict[str, Any] = {"status": status}
        if kind != "none":
            try:
                output["body"] = redact(_read_body(kind, response))
            except InvalidInput as error:
                # A proxy can answer with a page of its own, or cut the answer short.
                final = error.problems[0].code != "media_type" and (kind != "json" or is_whole(response.body))
                return unreadable_answer(error.problems[0], declaration, redact, final=final)
        if operation.output == "body":
            output = output.get("body")  # type: ignore[assignment]
            if not isinstance(output, dict):
                return unreadable_answer(_NO_OBJECT, declaration, redact, final=True)
        return AdapterReply(output=output, cost_cents=declaration.cost_cents)

    def _uncertain(self, declaration: CapabilityDefinition, reason: str) -> Unavailable | LostReply:
        if declaration.kind == "read":
            return Unavailable(self._definition.adapter_id, reason)
        return LostReply(f"{reason}; it may have happened, so look before it is sent again")


def openapi_adapter(
    connection: Mapping[str, Any],
    definition: AdapterDefinition,
    operations: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> OpenApiAdapter:
    """Make the adapter of an adapter file in the workspace `folder`. Its secrets are read here, once.

    Raises:
        InvalidInput: a member of the file is not valid, or a secret is missing.
    """
    parsed = parse(OpenApiConnection, dict(connection), at="/connection")
    calls = {
        name: parse(OpenApiOperation, dict(spec), at=pointer(("operations", name))) for name, spec in operations.items()
    }
    credentials = ConnectionSecrets(parsed.credentials, os.environ, folder)
    return OpenApiAdapter(parsed, definition, calls, credentials)


def _poll_s(response: OutboundResponse) -> int:
    retry_after = response.headers.get("retry-after", "")
    return min(int(retry_after), MAX_RETRY_AFTER_S) if _SECONDS.fullmatch(retry_after) else DEFAULT_POLL_S


def _answer_kind(operation: OpenApiOperation, status: int) -> str | None:
    """Return how the body of a successful answer is read, as the operation declares it; None for another status."""
    kinds = {answer.status: answer.body for answer in operation.answers}
    return kinds.get(str(status)) or (kinds.get("2XX") if 200 <= status < 300 else None)


def _business_error(response: OutboundResponse, redact: Callable[[Any], Any]) -> ToolError:
    """Return the business error of a 4xx. Its text is the body on one line, cut and without credentials."""
    try:
        # Redacted as a value: an escape in its text could hide a secret.
        text = canonical(redact(loads(response.body))).decode()
    except InvalidInput:
        text = redact(response.body.decode(errors="replace"))
    message = plain_text(shortened(text, MAX_ERROR_CHARS), MAX_ERROR_CHARS) or f"the server answered {response.status}"
    return ToolError(code=f"http_{response.status}", message=message)


def _read_body(kind: str, response: OutboundResponse) -> Any:
    """Return the body of an answer as JSON. Raises `InvalidInput` if it is not of the declared `kind`."""
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "json":
        if media and "json" not in media:
            raise InvalidInput(Problem("", "media_type", f"the body is `{media[:80]!a}`"))
        return loads(response.body)
    if kind == "base64":
        return base64.b64encode(response.body).decode()
    try:
        return response.body.decode()
    except UnicodeDecodeError:
        raise InvalidInput(Problem("", "not_utf8", "the body is not UTF-8")) from None


def _refuse_misfit(
    connection: OpenApiConnection, definition: AdapterDefinition, operations: Mapping[str, OpenApiOperation]
) -> None:
    server = destination(connection.server)
    faults = []
    if not server.is_in(definition.egress):
        faults.append(("egress", f"does not list `{server.endpoint}`, where the server is", "list it"))
    names = {capability.name for capability in definition.capabilities}
    faults += [
        (name, "is declared and has no operation", "add it to `operations`") for name in names - operations.keys()
    ]
    faults += [(name, "has an operation and is not declared", "declare it") for name in operations.keys() - names]
    for capability in definition.capabilities:
        operation, strategy = operations.get(capability.name), capability.idempotency.strategy
        if operation is None:
            continue
        if strategy == "lookup":
            faults.append((capability.name, "declares the strategy `lookup`, which no API has here", "use `none`"))
        if capability.idempotency.honours_not_after:
            faults.append((capability.name, "sends no time after which it is void", "leave `honours_not_after` out"))
        if strategy == "keyed" and operation.idempotency_header is None:
            faults.append((capability.name, "is `keyed` and sends no key", "state `idempotency_header`"))
        if capability.kind == "read" and operation.idempotency_header is not None:
            faults.append((capability.name, "is a read, and a read has no key", "leave `idempotency_header` out"))
        if fault := _output_misfit(capability, operation):
            faults.append((capability.name, *fault))
        if capability.kind == "read" and operation.method not in ("GET", "HEAD"):
            faults.append((capability.name, f"is a read by {operation.method}", "declare it as a write"))
        if operation.stated_read != (capability.kind == "read"):
            faults.append((capability.name, "is a read that nobody stated, or is stated as one", "set `stated_read`"))
        unknown = set(operation.credentials) - connection.credentials.keys()
        if unknown:
            faults.append((capability.name, f"needs the credential `{min(unknown)}`, which is not there", "add it"))
        headers = [place.name.lower() for place in operation.parameters if place.place == "header"]
        own_headers = _OWN_HEADERS | {(operation.idempotency_header or "").lower()}
        own_headers |= {
            (connection.credentials[key].name or "").lower() for key in operation.credentials if key not in unknown
        }
        places = {(place.place, place.name) for place in operation.parameters}
        secrets = [connection.credentials[key] for key in operation.credentials if key not in unknown]
        ends = any(answer.status != "202" for answer in operation.answers)
        placed_else = any(secret.place in ("query", "cookie") for secret in secrets)
        if operation.polled is not None and (capability.kind == "read" or not ends or placed_else):
            detail = "is polled, and is a read, has no other answer than 202, or a credential outside of the headers"
            faults.append((capability.name, detail, "correct it"))
        if sum(item.place in ("bearer", "basic") for item in secrets) > 1 and any(item.audience for item in secrets):
            faults.append((capability.name, "has a token of its own and another one", "name one of its credentials"))
        if any((secret.place, secret.name) in places for secret in secrets):
            faults.append((capability.name, "takes its own credential as an argument", "remove the argument"))
        if len(set(headers)) < len(headers) or own_headers.intersection(headers):
            faults.append((capability.name, "takes a header as an argument that it sets itself", "remove the argument"))
        arguments = {place.argument for place in operation.parameters}
        declaration = set(capability.input_schema.get("properties", {}))
        if operation.body is not None:
            arguments |= declaration - arguments if operation.body.argument is None else {operation.body.argument}
        if arguments != declaration:
            faults.append((capability.name, "sends other arguments than its schema names", "correct `operations`"))
    if faults:
        raise InvalidSettings(
            *(Problem(f"/operations/{name}", "misfit", f"`{name}` {detail}", remedy) for name, detail, remedy in faults)
        )


def _output_misfit(capability: CapabilityDefinition, operation: OpenApiOperation) -> tuple[str, str] | None:
    """Return why no answer can be the output of a capability, with the remedy, or None.

    Without this check the fault would show only after a call, whose effect nobody then reads.
    """
    if operation.output == "body":
        without = next((answer.status for answer in operation.answers if answer.body != "json"), None)
        detail = f"has the body as its output, and its answer `{without}` has none in JSON"
        return (detail, 'state `"output": "answer"`') if without else None
    members = ("status", "body") if any(answer.body != "none" for answer in operation.answers) else ("status",)
    member = unlisted_member(capability.output_schema, members)
    detail = f"has `{member}` in its output, which its output schema does not list"
    return (detail, 'state `"output": "body"`, or correct the schema') if member else None
