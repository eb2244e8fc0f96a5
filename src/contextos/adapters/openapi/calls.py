"""Holds the members `connection` and `operations` of an adapter file: how a capability is called over HTTP.

A person reviews these members, so each is explicit, and a member that has no effect is refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from contextos.contracts.model import Map, Model, Name, Seq

EnvName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,127}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
_CHARSET: Final = re.compile(r'charset=("?)(utf-8|us-ascii)\1')


def charset_of(media_type: str) -> str | None:
    """Return the charset that a media type states, in lower case, or None.

    Raises:
        ValueError: the charset is not allowed for sent texts, is stated twice, or in a form that readers differ in.

    >>> charset_of('text/plain; Charset="UTF-8"'), charset_of("text/plain")
    ('utf-8', None)
    """
    parameters = media_type.lower().partition(";")[2]
    if "charset" not in parameters:
        return None
    charsets = [parameter.strip() for parameter in parameters.split(";") if "charset" in parameter]
    match = _CHARSET.fullmatch(charsets[0])
    if match is None or len(charsets) > 1:
        raise ValueError("texts are sent in UTF-8; state `charset=utf-8` or `charset=us-ascii` once, or leave it out")
    return match[2]


def _with_known_charset(media_type: str) -> str:
    charset_of(media_type)
    return media_type


MediaType = Annotated[
    str,
    Field(max_length=256, pattern=r"^[!#$&^_.+*A-Za-z0-9-]+/[!#$&^_.+*A-Za-z0-9-]+(?: *; *[A-Za-z0-9_-]+=[ -~]*)*$"),
    AfterValidator(_with_known_charset),
]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject", "json"]
"""How a value is written as text (OpenAPI, "Style Values"). `json` writes its JSON form."""


class CredentialSource(Model):
    """A secret of the connection and where it goes. `name` is the name of the header, query parameter or cookie.

    The secret comes from the environment or a file and is the same for every user of a tenant; or it is a token that is
    issued for each call to `audience`.
    """

    place: Literal["bearer", "basic", "header", "query", "cookie"]
    name: HeaderName | None = None
    env: EnvName | None = None
    """The environment variable that holds the secret; for `basic` as `user:password`."""
    file: Name | None = None
    """The file that holds the secret, relative to the workspace."""
    audience: Name | None = None
    """The service for which a token is issued for each call; it goes into the place `bearer`."""

    @property
    def reference(self) -> str:
        """The source of a static secret: `env:NAME` or `file:PATH`."""
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if sum(source is not None for source in (self.env, self.file, self.audience)) != 1:
            raise ValueError("a credential comes from `env` or from `file`, or is issued to `audience`; state one")
        if self.audience is not None and self.place != "bearer":
            raise ValueError("a token that is issued to `audience` is a bearer token; set `place` to `bearer`")
        if (self.name is None) != (self.place in ("bearer", "basic")):
            raise ValueError("a header, query parameter or cookie has a `name`, and nothing else has one")
        return self


class OpenApiConnection(Model):
    """The server of an adapter. `internal`: a person said that the server is at a loopback or private address."""

    kind: Literal["openapi"]
    server: Name
    internal: bool = False
    credentials: Map[CredentialSource] = {}


class ParameterPlace(Model):
    """Where an argument goes: the parameter `name` in the path, the query, a header or a cookie."""

    argument: Name
    name: Name
    place: Literal["path", "query", "header", "cookie"]
    style: Style
    explode: bool = False
    allow_reserved: bool = False
    """Reserved characters that are not delimiters in a query are sent unencoded."""


class FormField(Model):
    """How one field of a form is written: in a `style`, or in `multipart/form-data` as a part with a media type."""

    style: Style = "form"
    explode: bool = True
    media_type: MediaType | None = None
    """The media type of each part of the field; None: a text has none, an object is JSON, and a file is bytes."""
    is_file: bool = False
    """The argument is `{"base64": …, "filename": …}`, or a list of these, and its bytes are sent."""


class BodyPlace(Model):
    """The argument that is the body of the request. Without `argument`, all arguments that are not parameters are the
    members of the body. `fields` has the fields of a form that are not written in the default way. A body that is not
    JSON, a form or a text is bytes, and its argument is their base64.
    """

    argument: Name | None
    media_type: MediaType
    fields: Map[FormField] = {}


class ExpectedAnswer(Model):
    """A successful answer: its status, such as `200` or `2XX`, and how its body is read, or that it is dropped. Bytes
    are read as their base64.
    """

    status: Annotated[str, Field(pattern=r"^2(?:[0-9]{2}|XX)$")]
    body: Literal["json", "text", "base64", "none"]


class PolledOperation(Model):
    """How the result of a write that is answered with 202 is found: by a GET of the URL in `header`, until the answer
    is not a 202 and its state, if `state` names one, is in `done`. That is the answer of the call. States are compared
    exactly, and a state that is in no list decides nothing.
    """

    header: Literal["location", "operation-location"]
    """The header of the 202 with the URL, at the endpoint of the server."""
    query: bool = False
    """The URL can have a query. The URL is on record, so a person states that no query of this server is a secret."""
    state: Annotated[str, Field(pattern=r"^/")] | None = None
    """A JSON Pointer to the state in the body. None: the status alone says whether the operation still runs."""
    running: Seq[Name] = ()
    """The states of an operation that still runs."""
    done: Seq[Name] = ()
    """The states of an operation that is done."""
    failed: Seq[Name] = ()
    """The states of an operation that failed without an effect."""

    @model_validator(mode="after")
    def _refuse_partial_states(self) -> Self:
        states = [*self.running, *self.done, *self.failed]
        if {bool(self.running), bool(self.done), bool(self.state)} != {bool(states)}:
            raise ValueError(
                "`state`, `running` and `done` belong together; state all of them, or none and no `failed`"
            )
        if len(set(states)) < len(states):
            raise ValueError("a state is listed twice; list it once, in `running`, `done` or `failed`")
        return self


class OpenApiOperation(Model):
    """The request of one capability. `path` is the template that follows the server's own path."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    path: Name
    parameters: Seq[ParameterPlace] = ()
    body: BodyPlace | None = None
    answers: Seq[ExpectedAnswer]
    output: Literal["answer", "body"] = "answer"
    """The form of the output: `{"status": …, "body": …}`, or the body alone, which then is an object."""
    credentials: Seq[Name] = ()
    """The credentials of the connection that a call carries."""
    stated_read: bool = False
    """A person stated that the call only reads; without it the capability is a write."""
    idempotency_header: HeaderName | None = None
    """The header in which the server takes the idempotency key, if it honours one."""
    polled: PolledOperation | None = None
    """How the server is asked for the result of a write that it answered with 202."""
