"""Reads the operations of a document: for each its arguments, request and answers, or a reason to refuse it.

The arguments are one closed object: each parameter under its own name, and the body under `body`. The output is
`{"status": …, "body": …}`. Nothing is guessed: an operation that needs something that is not supported is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from pydantic import ValidationError

from contextos.adapters.foreign.keywords import Inconvertible
from contextos.adapters.foreign.schemas import Convert, MadeSchema, Schemas
from contextos.adapters.foreign.texts import plain_text
from contextos.adapters.openapi.bodies import body_kind
from contextos.adapters.openapi.calls import CredentialSource, ExpectedAnswer, OpenApiOperation, ParameterPlace
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.places import check_path, refuse_other_server
from contextos.adapters.openapi.request_bodies import ReadBody, is_bytes, read_request_body
from contextos.contracts.encoding.codec import problems_of
from contextos.errors import InvalidInput

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
MAX_PARAMETERS: Final = 100
_STYLES: Final = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles that are allowed for each place of a parameter. The first is the default."""
_IGNORED_HEADERS: Final = frozenset({"accept", "authorization", "content-type"})
_MEDIA_RANGES: Final = frozenset(("*/*", "application/*", "text/*"))
_SUCCESS: Final = re.compile(r"2(?:[0-9]{2}|XX)", re.IGNORECASE)


@dataclass(frozen=True)
class ReadOperation:
    """One operation as the document describes it. `name` is its `operationId`, or its method and path."""

    name: str
    description: str
    call: OpenApiOperation
    arguments: MadeSchema
    output: MadeSchema
    credentials: Mapping[str, CredentialSource]
    notes: tuple[str, ...] = ()
    """The things that the document states and the request leaves out."""


@dataclass(frozen=True)
class RefusedOperation:
    """An operation that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class _Source:
    """An operation object of the document (`stated`), with its path item (`item`)."""

    name: str
    method: str
    path: str
    item: Mapping[str, Any]
    stated: Mapping[str, Any]


class Operations:
    """Reads the operations of one OpenAPI document for calls to `server`.

    `has_token`: a person named a token that every call sends. The security schemes of the document are then ignored.
    """

    def __init__(self, document: OpenApiDocument, server: str = "", *, has_token: bool = False) -> None:
        self._document, self._schemas = document, Schemas(document)
        self._server, self._has_token = server, has_token

    def names(self) -> frozenset[str]:
        """Return the name of every operation of the document."""
        return frozenset(source.name for source in self._sources())

    def read(self, only: frozenset[str] = frozenset()) -> Iterator[ReadOperation | RefusedOperation]:
        """Yield every operation of the document, or only the operations in `only` if it is not empty."""
        for source in self._sources():
            if only and source.name not in only:
                continue
            try:
                yield self._read_operation(source)
            except Inconvertible as error:
                yield RefusedOperation(source.name, str(error)[:400])
            except InvalidInput as error:
                yield RefusedOperation(source.name, error.problems[0].detail[:400])
            except ValidationError as error:
                yield RefusedOperation(
                    source.name, f"a name or path in it is not valid: {problems_of(error)[0].detail}"[:400]
                )

    def _sources(self) -> Iterator[_Source]:
        paths = self._document.root.get("paths", {})
        for path, item in paths.items() if isinstance(paths, dict) else ():
            try:
                whole = self._document.whole(item)
            except InvalidInput:
                whole = {}
            for method in METHODS:
                operation = whole.get(method)
                if isinstance(operation, dict):
                    name = operation.get("operationId")
                    yield _Source(
                        name if isinstance(name, str) and name else f"{method} {path}", method, path, whole, operation
                    )

    def _read_operation(self, source: _Source) -> ReadOperation:
        refuse_other_server(
            source.stated.get("servers", source.item.get("servers")), self._document.root.get("servers"), self._server
        )
        path, _, fragment = source.path.partition("#")
        notes: tuple[str, ...] = ("what follows `#` in its path is not sent",) if fragment else ()
        parameters = self._read_parameters(source)
        body = self._request_body(source)
        notes += body.notes if body is not None else ()
        if body is None and self._document.whole(source.stated.get("requestBody", {})).get("content"):
            notes += ("the body that its request can have is not sent",)
        arguments = self._argument_schema(parameters, body)
        answers, output = self._read_answers(source)
        credentials = self._read_credentials(source)
        places = {(place.place, place.name) for place, _, _ in parameters}
        if any((credential.place, credential.name) in places for credential in credentials.values()):
            raise Inconvertible("it takes its own credential as an argument")
        texts = (source.stated.get(member) for member in ("summary", "description"))
        call = OpenApiOperation(
            method=source.method.upper(),  # type: ignore[arg-type]
            path=path,
            parameters=tuple(place for place, _, _ in parameters),
            body=body.place if body is not None else None,
            answers=answers,
            credentials=tuple(credentials),
        )
        text = ". ".join(text for text in texts if isinstance(text, str))
        return ReadOperation(source.name, text, call, arguments, output, credentials, notes)

    def _read_parameters(self, source: _Source) -> list[tuple[ParameterPlace, Any, bool]]:
        """Return each parameter with its schema and whether it is required."""
        parameters: dict[tuple[Any, str], Mapping[str, Any]] = {}
        for group in (source.item.get("parameters", ()), source.stated.get("parameters", ())):
            if not isinstance(group, list | tuple):
                raise Inconvertible("`parameters` is not a list")
            for entry in group:
                parameter = self._document.whole(entry)
                place, name = parameter.get("in"), parameter.get("name")
                if not isinstance(name, str) or not isinstance(place, str) or place not in _STYLES:
                    raise Inconvertible(f"a parameter is in `{str(place)[:40]}`, which is not supported")
                if place != "header" or name.lower() not in _IGNORED_HEADERS:
                    parameters[place, name] = parameter
        if len(parameters) > MAX_PARAMETERS:
            raise Inconvertible(f"it has more than {MAX_PARAMETERS} parameters")
        check_path(source.path.partition("#")[0], {name for place, name in parameters if place == "path"})
        query_names = {unquote(pair.partition("=")[0]) for pair in source.path.partition("?")[2].split("&")}
        if duplicate := next((name for place, name in parameters if place == "query" and name in query_names), None):
            raise Inconvertible(f"its path has `{plain_text(duplicate, 40)}` in its query, which is a parameter too")
        names = [name for _, name in parameters]
        ambiguous = {"body", *(name for name in names if names.count(name) > 1)}
        result = []
        for (place, name), parameter in parameters.items():
            schema, style = _schema_and_style(place, parameter)
            explode = parameter.get("explode", style == "form")
            argument = f"{place}_{name}" if name in ambiguous else name
            target = ParameterPlace(
                argument=argument,
                name=name,
                place=place,
                style=style,
                explode=bool(explode),
                allow_reserved=place == "query" and parameter.get("allowReserved") is True,
            )
            result.append((target, schema, place == "path" or parameter.get("required") is True))
        return result

    def _request_body(self, source: _Source) -> ReadBody | None:
        if "requestBody" not in source.stated:
            return None
        if source.method in ("get", "head"):
            if self._document.whole(source.stated["requestBody"]).get("required") is True:
                raise Inconvertible("it requires a body in a request that has none")
            return None
        return read_request_body(self._document, source.stated["requestBody"])

    def _argument_schema(self, parameters: list[tuple[ParameterPlace, Any, bool]], body: ReadBody | None) -> MadeSchema:
        sources = [(place.argument, source, is_required) for place, source, is_required in parameters]
        if body is not None:
            sources.append((str(body.place.argument), body.schema, body.is_required))

        def build(convert: Convert) -> dict[str, Any]:
            schema: dict[str, Any] = {
                "type": "object",
                "properties": {name: convert(source, "closed") for name, source, _ in sources},
                "additionalProperties": False,
            }
            required = [name for name, _, is_required in sources if is_required]
            return {**schema, "required": required} if required else schema

        return self._schemas.made("closed", [source for _, source, _ in sources], build)

    def _read_answers(self, source: _Source) -> tuple[tuple[ExpectedAnswer, ...], MadeSchema]:
        responses = source.stated.get("responses")
        responses = responses if isinstance(responses, dict) else {}
        bodies: dict[str, tuple[str, Any]] = {}
        redirects = [str(status) for status in responses if str(status).startswith("3")]
        reason = "it has no answer of success"
        if redirects:
            reason = f"it answers with {redirects[0]}, and no redirect is followed"
        for status, response in responses.items():
            code = "2XX" if status == "default" and not any(map(_SUCCESS.fullmatch, responses)) else str(status).upper()
            if not _SUCCESS.fullmatch(code):
                continue
            kind, schema = self._answer_body(source, self._document.whole(response))
            if not kind:
                reason = f"its answer is `{schema}`, which is not supported"
            else:
                bodies[code] = kind, schema
        if not bodies:
            raise Inconvertible(reason)
        answers = tuple(ExpectedAnswer(status=code, body=kind) for code, (kind, _) in bodies.items())  # type: ignore[arg-type]
        schemas = [schema for kind, schema in bodies.values() if kind == "json"]
        return answers, self._schemas.made("output", schemas, partial(_output_schema, bodies))

    def _answer_body(self, source: _Source, response: Mapping[str, Any]) -> tuple[str, Any]:
        """Return how the body of an answer is read, and its schema. "" for a body of no supported media type; the
        second value is then the text that names the types.
        """
        content = response.get("content")
        if not isinstance(content, dict) or not content or source.method == "head":
            return "none", None
        schemas = {media: self._document.whole(entry).get("schema", {}) for media, entry in content.items()}
        for kind in ("json", "text"):
            for media, schema in schemas.items():
                if body_kind(media) == kind:
                    return kind, schema
        for media in _MEDIA_RANGES & schemas.keys():
            if not is_bytes(self._document, schemas[media]):
                whole = self._document.whole(schemas[media]) if isinstance(schemas[media], dict) else {}
                return "text" if media == "text/*" or whole.get("type") == "string" else "json", schemas[media]
        if any(body_kind(media) == "bytes" or str(media).endswith("/*") for media in content):
            return "base64", None
        return "", plain_text(", ".join(map(str, content)), 100)

    def _read_credentials(self, source: _Source) -> dict[str, CredentialSource]:
        """Return the credentials of the first alternative that is supported, by their names in the document."""
        if self._has_token:
            return {}
        security = source.stated.get("security", self._document.root.get("security", []))
        components = self._document.root.get("components")
        schemes = components.get("securitySchemes", {}) if isinstance(components, dict) else {}
        if not isinstance(security, list) or not isinstance(schemes, dict):
            raise Inconvertible("`security` is not a list")
        reason = ""
        for alternative in sorted(security, key=lambda entry: not entry):
            if not isinstance(alternative, dict):
                raise Inconvertible("`security` is not a list of objects")
            try:
                if missing := sorted(alternative.keys() - schemes.keys()):
                    detail = f"`{plain_text(missing[0], 80)}` is described nowhere; name a token with `--bearer-env`"
                    raise Inconvertible(detail)
                return {name: credential_of(name, self._document.whole(schemes[name])) for name in alternative}
            except (Inconvertible, InvalidInput) as error:
                reason = reason or str(error)
        if reason:
            raise Inconvertible(f"its security is not supported: {reason}")
        return {}


def credential_of(name: str, scheme: Mapping[str, Any]) -> CredentialSource:
    """Return the credential that a security scheme asks for. A token of OAuth 2 is sent as a bearer token.

    Raises:
        Inconvertible: the scheme is not supported.
    """
    env = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")[:100]
    env = env if env[:1].isalpha() else f"KEY_{env}"
    kind, http = scheme.get("type"), str(scheme.get("scheme", "")).lower()
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and http == "bearer"):
        return CredentialSource(place="bearer", env=env)
    if kind == "http" and http == "basic":
        return CredentialSource(place="basic", env=env)
    if kind == "apiKey" and scheme.get("in") in ("header", "query", "cookie"):
        parameter = str(scheme.get("name"))
        if scheme["in"] == "header" and parameter.lower() == "authorization":
            return CredentialSource(place="header", name=parameter, env=env)
        return CredentialSource(place=scheme["in"], name=parameter, env=env)
    raise Inconvertible(f"the scheme `{str(kind)[:40]}`, `{http[:40]}`")


def _schema_and_style(place: Any, parameter: Mapping[str, Any]) -> tuple[Any, Any]:
    content = parameter.get("content")
    if isinstance(content, dict) and content:
        media_type, entry = next(iter(content.items()))
        if body_kind(media_type) != "json" or not isinstance(entry, dict):
            raise Inconvertible(f"the parameter `{parameter['name'][:80]}` is written as `{media_type[:80]}`")
        return entry.get("schema", {}), "json"
    style = parameter.get("style", _STYLES[place][0])
    if style not in _STYLES[place]:
        raise Inconvertible(f"the style `{str(style)[:40]}` does not exist in {place}")
    return parameter.get("schema", {}), style


def _output_schema(answers: Mapping[str, tuple[str, Any]], convert: Convert) -> dict[str, Any]:
    """Return the schema of `{"status": …, "body": …}`, in which each status has its own schema of the body."""
    cases = []
    for code, (kind, schema) in answers.items():
        status: dict[str, Any] = {"minimum": 200, "maximum": 299} if code == "2XX" else {"enum": [int(code)]}
        properties: dict[str, Any] = {"status": {"type": "integer", **status}}
        if kind != "none":
            properties["body"] = convert(schema, "output") if kind == "json" else {"type": "string"}
        cases.append({"properties": properties, "required": list(properties)})
    root: dict[str, Any] = {"type": "object", "additionalProperties": False}
    if len(cases) == 1:
        return root | cases[0]
    bodies = any("body" in case["properties"] for case in cases)
    names: dict[str, Any] = {"status": {"type": "integer"}} | ({"body": {}} if bodies else {})
    return root | {"properties": names, "required": ["status"], "anyOf": cases}
