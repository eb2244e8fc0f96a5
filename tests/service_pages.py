"""Pages that start a server and call it: typed in one bash session, as their reader types them, on a free port."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.docs.pages import Typed, blocks, make_shim, typed
from tests.terminal import check_session, play

PORT: Final = "8765"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def type_page(page: str, place: Path, programs: Sequence[Path] = ()) -> None:
    """Type a page in an empty directory below `place`; each command ends as the page states, and says what it shows."""
    (place / "empty").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    page = page.replace(PORT, port).replace("contextos serve 2>", f"contextos serve --port {port} 2>")
    found: list[Typed] = []
    for block in blocks(page):
        if block.title:
            # The reader saves it in the workspace; the session writes it there.
            found.append(Typed(f"cat > {block.title} <<'END'\n{block.text}END", 0, ()))
        elif block.language == "console":
            found += typed(block.text)
    said = play(found, place / "empty", [make_shim(place / "bin"), *programs])
    check_session(found, [(code, COLOUR.sub("", shown)) for code, shown in said])
