"""The shop and the cluster of the examples as HTTP APIs with OpenAPI documents, as somebody writes them who knows
nothing of ContextOS: `http_api.py shop|shop_without_keys|cluster FOLDER` prints the port on which it serves.

A write takes its key in the header `Idempotency-Key`. `GET /openapi.json` is the document, and `asked` in `FOLDER` has
a line for each call. With `DIES_IN=OPERATION` the process is killed when it has done that and before it answers. With
the number of an open socket as a third argument it serves there, once it has read a line from stdin.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from listening import load_module, serve, serve_on
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from contextos.adapters.function.adapter import BusinessError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support_refund" / "shop.py"
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
KEY = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string", "maxLength": 255}}

Answer = Callable[[dict[str, str], dict[str, Any], str], Any]
"""(parameters of the path and the query, members of the body, key) -> the body of the answer."""


def operation(name: str, summary: str, answer: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One operation of a document. With a `body` it is a write."""
    members = {"type": "object", "properties": answer, "required": list(answer)}
    said: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": members}}},
            "4XX": {"description": "Refused", "content": {"application/problem+json": {"schema": {"type": "object"}}}},
        },
    }
    if body is not None:
        said["parameters"] = [KEY]
        sent = {"type": "object", "properties": body, "required": list(body)}
        said["requestBody"] = {"required": True, "content": {"application/json": {"schema": sent}}}
    return said


def parameter(name: str, place: str, schema: dict[str, Any] = TEXT) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": schema}


def shop(folder: Path) -> tuple[dict[str, Any], dict[str, Answer]]:
    """The paths of the shop's document, and the answer of each."""
    return _shop(folder, "keyed")


def shop_without_keys(folder: Path) -> tuple[dict[str, Any], dict[str, Answer]]:
    """The same shop before it had keys: every call of `createRefund` pays."""
    paths, answers = _shop(folder, "none")
    del paths["/orders/{order_id}/refunds"]["post"]["parameters"]
    return paths, answers


def _shop(folder: Path, mode: str) -> tuple[dict[str, Any], dict[str, Answer]]:
    books = load_module(EXAMPLE).Shop(folder / "shop.db")
    order = {"order_id": TEXT, "customer_id": TEXT, "total_inr": NUMBER, "currency": TEXT, "status": TEXT}
    allowed = {"eligible": {"type": "boolean"}, "refundable_inr": NUMBER, "policy_version": TEXT}
    sent, paid = {"amount_inr": NUMBER, "currency": TEXT}, {"transaction_id": TEXT, "refund_amount_inr": NUMBER}
    in_path = [parameter("order_id", "path")]
    paths = {
        "/orders/{order_id}": {"parameters": in_path, "get": operation("getOrder", "One order.", order)},
        "/orders/{order_id}/eligibility": {
            "parameters": [*in_path, parameter("amount_inr", "query", NUMBER)],
            "get": operation("checkRefund", "Whether a refund is allowed.", allowed),
        },
        "/orders/{order_id}/refunds": {
            "parameters": in_path,
            "post": operation("createRefund", "Pay money back.", paid | {"currency": TEXT}, sent),
        },
    }
    return paths, {
        "getOrder": lambda at, _body, _key: books.order(at["order_id"]),
        "checkRefund": lambda at, _body, _key: books.eligibility(at["order_id"], int(at["amount_inr"])),
        "createRefund": lambda at, body, key: books.refund(
            at["order_id"], body["amount_inr"], body["currency"], key, mode
        ),
    }


def cluster(folder: Path) -> tuple[dict[str, Any], dict[str, Answer]]:
    """The paths of the cluster's document, and the answer of each."""
    tools: Any = load_module(folder / "deploy.py")
    in_path = [parameter("service", "path")]
    build = {"newest": TEXT, "green": {"type": "boolean"}, "before": TEXT}
    noticed = {"customers": NUMBER, "frozen": {"type": "boolean"}}
    paths = {
        "/services/{service}/build": {"parameters": in_path, "get": operation("getBuild", "The newest build.", build)},
        "/services/{service}/impact": {
            "parameters": [*in_path, parameter("env", "query")],
            "get": operation("getImpact", "Who notices a change.", noticed),
        },
        "/services/{service}/replicas": {
            "parameters": in_path,
            "put": operation("setReplicas", "Scale.", {"result": NUMBER}, {"env": TEXT, "replicas": NUMBER}),
        },
        "/services/{service}/rollbacks": {
            "parameters": in_path,
            "post": operation("createRollback", "Put the build before back.", {"result": TEXT}, {"env": TEXT}),
        },
    }
    return paths, {
        "getBuild": lambda at, _body, _key: tools.ci_status(at["service"]).model_dump(),
        "getImpact": lambda at, _body, _key: tools.impact(at["service"], at["env"]).model_dump(),
        "setReplicas": lambda at, body, key: {"result": tools.scale(at["service"], body["env"], body["replicas"], key)},
        "createRollback": lambda at, body, key: {"result": tools.rollback(at["service"], body["env"], key)},
    }


APIS = {"shop": shop, "shop_without_keys": shop_without_keys, "cluster": cluster}


def application(title: str, folder: Path) -> Starlette:
    """The application that answers as its document says."""
    paths, answers = APIS[title](folder)

    def endpoint(said: dict[str, Any]) -> Callable[[Request], Any]:
        named, is_write, is_keyed = said["operationId"], "requestBody" in said, "parameters" in said

        async def answered(request: Request) -> JSONResponse:
            key, body = request.headers.get("Idempotency-Key", ""), await request.json() if is_write else {}
            with (folder / "asked").open("a", encoding="utf-8") as asked:
                asked.write(f"{named} {key}\n")
            if is_keyed and not key:
                return JSONResponse({"title": "the header `Idempotency-Key` is missing"}, 400)
            try:
                found = answers[named]({**request.path_params, **request.query_params}, body, key)
            except BusinessError as refused:
                return JSONResponse({"title": str(refused), "code": refused.code}, 409)
            if os.environ.get("DIES_IN") == named:
                os.kill(os.getpid(), signal.SIGKILL)
            return JSONResponse(found)

        return answered

    document = {"openapi": "3.1.0", "info": {"title": title, "version": "1.0"}, "paths": paths}

    async def described(_: Request) -> JSONResponse:
        return JSONResponse(document)

    routes = [Route("/openapi.json", described)]
    for path, item in paths.items():
        for method, said in item.items():
            if method != "parameters":
                routes.append(Route(path, endpoint(said), methods=[method.upper()]))
    return Starlette(routes=routes)


def main(title: str, folder: str, descriptor: str = "") -> None:
    app = application(title, Path(folder))
    if descriptor:
        sys.stdin.readline()
        serve_on(socket.socket(fileno=int(descriptor)), app)
    else:
        serve(app)


if __name__ == "__main__":
    main(*sys.argv[1:])
