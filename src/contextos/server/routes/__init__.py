"""The routes of the HTTP API: one module for each kind of thing (such as runs or sessions), with one `APIRouter`.

A route authenticates its caller, finds the thing that the caller may see, calls the application, and returns a document
of `service.views`. It decides nothing else.
Tests: `tests/unit/server/routes`.
"""
