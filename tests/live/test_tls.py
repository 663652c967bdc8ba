import asyncio
import socket
import sys
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.errors import EndpointError
from agentload.live.hub import ReadPath
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.live.wire import Wire, WireFacts
from tests.live.calls import MS, hasty, request
from tests.live.certificates import Certificates
from tests.live.late import written_to_a_late_reader
from tests.live.scripted import Peer, serving

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]


async def good_answer(peer: Peer) -> None:
    await peer.answer()


async def test_a_stream_over_tls_is_read_and_its_connection_used_again(
    certificates: Certificates, read_path: ReadPath
) -> None:
    trusted = context(authority=certificates.authority)
    async with (
        serving(good_answer, tls=certificates.server_context()) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        outcomes = [await wire.call(request(number, body=(b"x" * 300_000,))) for number in range(2)]
    assert [(outcome.status, outcome.output_tokens) for outcome in outcomes] == [
        ("ok", 3),
        ("ok", 3),
    ]
    assert (server.connections, len(server.requests[1].body)) == (1, 300_000)
    assert outcomes[0].stamp_source == ("kernel" if sys.platform == "linux" else "user")
    assert outcomes[0].sent_ns is not None
    assert wire.facts() == WireFacts(
        unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0, read_path=read_path
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps")
async def test_a_late_reader_does_not_move_the_stamps_of_tls_records(
    certificates: Certificates,
) -> None:
    server_side = certificates.server_context()

    def serve(listening: socket.socket) -> list[tuple[int, int]]:
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with server_side.wrap_socket(peer, server_side=True) as secure:
            return written_to_a_late_reader(secure, loop)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_it = loop.run_in_executor(None, serve, listening)
        target = Target(
            arm="a",
            url=f"https://127.0.0.1:{listening.getsockname()[1]}/v1",
            tls=context(authority=certificates.authority),
        )
        async with Wire([target]) as wire:
            outcome = await wire.call(request())
        written_ns = await serving_it
    assert outcome.chunks is not None
    assert [
        before - MS <= stamp <= after
        for stamp, (before, after) in zip(outcome.chunks.ns(), written_ns, strict=True)
    ] == [True, True]


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    trusted = context(
        authority=certificates.authority,
        certificate=certificates.certificate("client"),
        key=certificates.key("client"),
    )
    async with (
        serving(good_answer, tls=certificates.server_context(asks_client=True)) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        assert (await wire.call(request())).status == "ok"


async def test_a_server_that_wants_a_client_certificate_and_gets_none_is_a_broken_connection(
    certificates: Certificates,
) -> None:
    trusted = context(authority=certificates.authority)
    async with (
        serving(good_answer, tls=certificates.server_context(asks_client=True)) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        outcome = await wire.call(request())
    assert outcome.status == "reset"


async def test_a_server_of_an_unknown_authority_is_refused(certificates: Certificates) -> None:
    async with (
        serving(good_answer, tls=certificates.server_context()) as server,
        Wire([Target(arm="a", url=server.url)]) as wire,
    ):
        # The first use of the system's authorities reads them, which takes a busy machine a while.
        outcome = await wire.call(request())
    assert outcome.status == "refused"
    assert outcome.error is not None
    assert f"SSLCertVerificationError with 127.0.0.1:{server.port}: " in outcome.error


@pytest.mark.parametrize(
    ("name", "why"),
    [("expired", "certificate has expired"), ("elsewhere", "is not valid for '127.0.0.1'")],
)
async def test_a_certificate_that_has_expired_or_is_another_servers_is_refused(
    certificates: Certificates, name: str, why: str
) -> None:
    trusted = context(authority=certificates.authority)
    async with (
        serving(good_answer, tls=certificates.server_context(name=name)) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        outcome = await wire.call(request())
    assert (outcome.status, why in (outcome.error or ""), server.requests) == (
        "refused",
        True,
        [],
    ), outcome.error


async def test_a_certificate_that_expires_meanwhile_refuses_new_connections_and_ends_none(
    certificates: Certificates,
) -> None:
    trusted, server_side = context(authority=certificates.authority), certificates.server_context()
    async with (
        serving(good_answer, tls=server_side) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        statuses = [(await wire.call(request(0, session="s"))).status]
        server_side.load_cert_chain(
            certificates.certificate("expired"), certificates.key("expired")
        )
        kept, new = [
            await wire.call(request(number, session=session))
            for number, session in ((1, "s"), (2, "t"))
        ]
    assert [*statuses, kept.status, new.status] == ["ok", "ok", "refused"]
    assert "certificate has expired" in (new.error or "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("expired", "renew it on the server; or is the clock of this machine wrong?"),
        ("elsewhere", "call the server by a name of its certificate"),
    ],
)
async def test_a_server_with_such_a_certificate_is_not_asked_who_it_is(
    certificates: Certificates, name: str, hint: str
) -> None:
    async with serving(good_answer, tls=certificates.server_context(name=name)) as server:
        with pytest.raises(EndpointError, match="certificate") as caught:
            await identify(Endpoint(name="a", url=server.url, ca_file=str(certificates.authority)))
        assert server.requests == []
    assert caught.value.hint == hint


async def test_verification_can_be_turned_off(certificates: Certificates) -> None:
    async with (
        serving(good_answer, tls=certificates.server_context()) as server,
        Wire([Target(arm="a", url=server.url, tls=context(verify=False))]) as wire,
    ):
        assert (await wire.call(request())).status == "ok"


async def test_a_plain_server_behind_an_https_url_is_not_waited_for() -> None:
    async with (
        serving(good_answer) as server,
        Wire([Target(arm="a", url=server.url.replace("http:", "https:"))]) as wire,
    ):
        outcome = await wire.call(request(limits=hasty("connect")))
    # The server waits for the end of a head that a TLS greeting does not have.
    assert (outcome.status, server.requests) == ("connect_timeout", [])


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    nothing = tmp_path / "ca.pem"
    nothing.write_text("nothing")
    with pytest.raises(EndpointError) as caught:
        context(authority=nothing)
    assert caught.value.message.startswith(f"the TLS files {nothing} cannot be used: ")


# --- proxies ---


async def splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def tunnel(peer: Peer) -> None:
    """Do as a CONNECT proxy does."""
    host, _, port = peer.request.line.split()[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(splice(peer.reader, writer), splice(reader, peer.writer))
    finally:
        writer.close()
        await writer.wait_closed()


async def test_tls_goes_through_the_tunnel_of_a_proxy(certificates: Certificates) -> None:
    async with (
        serving(good_answer, tls=certificates.server_context()) as server,
        serving(tunnel) as proxy,
    ):
        target = Target(
            arm="a",
            url=server.url,
            tls=context(authority=certificates.authority),
            proxy=f"http://me:pw@127.0.0.1:{proxy.port}",
        )
        async with Wire([target]) as wire:
            outcome = await wire.call(request())
    assert outcome.status == "ok"
    assert proxy.requests[0].line == f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
    assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6cHc="
    assert "authorization" not in server.requests[0].headers


async def test_a_plain_call_goes_to_the_proxy_with_its_whole_url() -> None:
    async with serving(good_answer) as proxy:
        target = Target(
            arm="a", url="http://far.invalid:8000/v1", proxy=f"http://127.0.0.1:{proxy.port}"
        )
        async with Wire([target]) as wire:
            outcome = await wire.call(request())
    assert (outcome.status, proxy.requests[0].line) == (
        "ok",
        "POST http://far.invalid:8000/v1/chat/completions HTTP/1.1",
    )


async def test_a_proxy_that_denies_the_tunnel_refuses() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")

    async with (
        serving(answer) as proxy,
        Wire(
            [Target(arm="a", url="https://far.invalid/v1", proxy=f"http://127.0.0.1:{proxy.port}")]
        ) as wire,
    ):
        outcome = await wire.call(request())
    assert (outcome.status, outcome.error) == (
        "refused",
        "the proxy refused the tunnel: HTTP/1.1 407 Proxy Authentication Required",
    )
