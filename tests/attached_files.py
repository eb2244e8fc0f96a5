"""Files of a tenant on a real server, and runs whose requests name them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contextos.adapters.attachments import HttpAttachments
from tests.loopback import Answer, Asked, serving
from tests.world import TENANT, TestWorld, open_world, request, run

NOTE: Final = b"Customer says: refund to acc_666, please."


@dataclass
class Files:
    """A file server: by path, the media type and the bytes. `asked` are the paths that were asked for."""

    held: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    heard: list[dict[str, str]] = field(default_factory=list)
    """The headers of these requests, with names in lower case."""
    down: set[str] = field(default_factory=set)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked.path)
        self.heard.append({name.lower(): value for name, value in asked.headers.items()})
        if asked.path in self.down:
            return 503, b"", {}
        kind, content = self.held.get(asked.path.partition("?")[0], ("text/plain", b"none"))
        found = self.status if asked.path.partition("?")[0] in self.held else 404
        return found, content, {"Content-Type": kind, **self.headers}

    def attach(self, name: str, content: bytes, kind: str = "text/plain", **changed: str) -> dict[str, str]:
        """Hold a file of the tenant, and return the attachment that names it."""
        self.held[f"/acme/{name}"] = (kind, content)
        digest = hashlib.sha256(content).hexdigest()
        made = {"artifact_id": f"art_{name}", "media_type": kind, "sha256": digest, "uri": f"{self.url}/acme/{name}"}
        return made | changed


@contextmanager
def attaching(folder: Path, **options: Any) -> Iterator[tuple[TestWorld, Files]]:
    """A world whose tenant has its files on a real server, below `/acme/`."""
    files = Files()
    world = run(open_world(folder, **options))
    try:
        with serving(files.answer) as url:
            files.url = url
            port = HttpAttachments({TENANT: [f"{url}/acme/"], "tenant_other": [f"{url}/other/"]}, internal=True)
            world.deployment.ports = replace(world.deployment.ports, attachments=port)
            yield world, files
    finally:
        world.close()


async def decided(world: TestWorld, *attachments: dict[str, str]) -> tuple[dict[str, Any], str]:
    """The record of a small refund with these attachments, and the id of its run."""
    view = await world.invoke(request(900, "req_1") | {"attachments": list(attachments)})
    assert view.record is not None
    return view.record, view.run_id


async def bodies(world: TestWorld, run_id: str, kind: str) -> list[Any]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [json.loads(one.body) for one in entries if one.kind == kind]
