"""A real server on the loopback that counts connections and answers with the bytes that a test gives it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass
class RawServer:
    """`answer` is sent after the head of a request was read, part by part. `hangs`: then nothing more, and no end."""

    answer: Iterable[bytes] = ()
    hangs: bool = False
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """The server names (SNI) that clients asked for."""
    open: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open.append((task, writer))
        with suppress(OSError, asyncio.IncompleteReadError):
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            for part in self.answer:
                writer.write(part)
                await writer.drain()
            if self.hangs:
                await reader.read()
        writer.close()


@asynccontextmanager
async def raw_server(
    *answer: bytes, hangs: bool = False, tls: ssl.SSLContext | None = None, parts: Iterable[bytes] = ()
) -> AsyncIterator[RawServer]:
    """Serve `answer`, then `parts`, on a free port."""
    made = RawServer(answer or parts, hangs)
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: made.names.append(name)  # type: ignore[assignment]
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task, writer in made.open:
            if not made.hangs:
                await asyncio.wait({task}, timeout=5)
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*(task for task, _ in made.open), return_exceptions=True)
        await asyncio.sleep(0)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS settings of a server that has a certificate for `name`, and of a client that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    file = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(pem + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=pem.decode())
