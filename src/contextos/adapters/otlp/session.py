"""`collector_session`: how telemetry reaches the collector of one tenant, under the rules of every other address.

The exporters of OpenTelemetry send by a session of `requests`. This session hands each request to `OutboundClient`:
checked addresses, no redirects, no proxies, and a time limit for everything. Only the headers that are given here are
sent: the SDK would add the operator's from `OTEL_EXPORTER_OTLP_HEADERS`. Only the status of an unsuccessful answer is
kept, because the SDK logs the rest, and a collector can send a header back in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from contextos.adapters.outbound import OutboundClient, OutboundRequest, destination, internal_address_fault
from contextos.errors import InvalidInput, LostReply, Problem, Unavailable

if TYPE_CHECKING:
    from requests import PreparedRequest, Session

CONTENT_TYPE: Final = "application/x-protobuf"


def collector_session(url: str, headers: Mapping[str, str], *, internal: bool) -> Session:
    """Return a session that sends to the collector at `url`, with these headers, and to nowhere else.

    `internal` allows the collector to be at a loopback or private address.

    Raises:
        InvalidInput: the URL is not valid, or is at an address to which nothing is ever sent.
    """
    import requests
    from requests.adapters import BaseAdapter

    collector = destination(url)
    if fault := internal_address_fault(collector.host, internal=internal):
        raise InvalidInput(Problem("/otlp_url", "address_refused", *fault))
    client = OutboundClient(internal=(collector.endpoint,) if internal else ())
    sent_headers = {**headers, "content-type": CONTENT_TYPE}

    class Outbound(BaseAdapter):
        def send(self, request: PreparedRequest, *_: Any, timeout: Any = None, **_more: Any) -> requests.Response:
            body = request.body if isinstance(request.body, bytes) else b""
            outbound = OutboundRequest("POST", str(request.url), sent_headers, body)
            try:
                answer = asyncio.run(client.send(outbound, egress=[collector.endpoint], timeout_s=float(timeout or 0)))
            except (Unavailable, LostReply) as error:
                raise requests.exceptions.ConnectionError(str(error)) from None
            except InvalidInput as refused:
                raise requests.exceptions.InvalidURL(refused.problems[0].detail) from None
            if 300 <= answer.status < 400:  # to the SDK it would be a success
                detail = f"the collector answered {answer.status}, and a redirect is not followed"
                raise requests.exceptions.ConnectionError(detail)
            response = requests.Response()
            response.status_code, response.url = answer.status, url
            response.headers.update({name: value for name, value in answer.headers.items() if name == "retry-after"})
            response._content = answer.body if answer.status == 200 else b""
            return response

        def close(self) -> None:
            """Do nothing: no connection outlives a request."""

    session = requests.Session()
    session.trust_env = False
    for scheme in ("https://", "http://"):
        session.mount(scheme, Outbound())
    return session
