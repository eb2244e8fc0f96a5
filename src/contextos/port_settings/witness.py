"""The setting `witness`: a file, or the URL of a sink that the owner of the store cannot write."""

from __future__ import annotations

from contextos.port_settings.checks import bad, is_loopback, url_parts


def is_sink_url(witness: str) -> bool:
    """Return whether the setting `witness` is a URL and not a file."""
    return witness.startswith(("https://", "http://"))


def check_witness(witness: str) -> None:
    """Check that `witness` is a file, or a URL whose answers nobody on the way can change. Raises `InvalidSettings`."""
    if "\0" in witness:
        raise bad("/witness", "`/witness` is not a path", "name a file")
    if "://" not in witness:
        return
    parts = url_parts(witness)
    if not parts.hostname or not is_sink_url(witness):
        detail = "the URL in `/witness` is not the URL of a sink"
        raise bad("/witness", detail, "write `https://host/path` without a query, or name a file")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        detail = "the connection to the witness is not encrypted, so anybody on the way could answer for it"
        raise bad("/witness", detail, "write `https://`")
