"""Protocols by which external callers reach this process: the HTTP API of a deployment, and MCP servers (`mcp`).

Owns the authentication of a request, its translation to a call, and that of the answer to a document. Does not own the
answer: `service` and `deployment` have the runs, approvals and sessions, and the engine drives the runs.

- `edge`: the checks of each HTTP request before anything else reads it. `serving`: MCP over HTTP on this machine.
- `assembly`: the whole API as one ASGI application, with the routes under `/v1`, over what `App` offers.
- `routes`: one module for each kind of thing; `control` and `operate`: the same for those who govern and operate a
  tenant; `login`: for people with a browser. `shared`: pages, tags and forms, which the groups of routes share.
- `operations`: the routes of the table of operations (`service.operations.table`).
- `callers`: finds the caller of a request by its bearer token or its session; `rates`: limits the requests of callers.
  `cookies`: the cookies of browsers that log in.
- `access`: what a caller may see. `bodies`: bounded JSON. `service.views` has the models of the answers.
- `problems`: every error as a problem document (RFC 9457). `openapi`: the OpenAPI document.
- `hosting`: the process that serves it.

Invariants, with the tests that prove them:

- What a caller may not see is answered exactly as what does not exist: `tests/attacks/test_f45_http_tenants.py`.
- A token that is expired, altered, or made for another server opens nothing: `tests/attacks/test_f46_http_tokens.py`.
- A session of a browser counts only for requests from a page of this service, and only until logout:
  `tests/attacks/test_f51_browser_sessions.py`.
- An act of an operator needs their signature of exactly that act: `tests/attacks/test_f49_http_operations.py`.
- The refused requests of a caller do not count against others, and no tenant takes the places of another tenant:
  `tests/attacks/test_f50_rate_limits.py`.
- No request is answered with a stack, and none is read without a bound: `tests/attacks/test_f47_http_requests.py`.
- Packs, policies and other governed things of a tenant change only with a signature of its own people:
  `tests/attacks/test_f48_http_control.py`.
- A stream of events that is cut anywhere and resumed has no gap and no duplicate:
  `tests/unit/server/routes/test_events.py`.
- A server that is killed loses no request that it accepted and repeats none: `tests/e2e/test_killed_service.py`.
- Every answer to a generated request fits the OpenAPI document: `tests/unit/server/test_openapi.py`.
"""
