from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from agentload.errors import StoreError
from agentload.live import raw as raw_module
from agentload.live.raw import RawLog
from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.commands import Outcome
from tests.live.calls import request
from tests.live.scripted import Peer, serving

KEY = "opaque-key-of-ours"


def lines(path: Path) -> list[dict[str, object]]:
    with zstandard.ZstdDecompressor().stream_reader(
        io.BytesIO(path.read_bytes()), read_across_frames=True
    ) as reader:
        return [json.loads(line) for line in reader.read().splitlines()]


@pytest.mark.loopback
async def test_every_byte_that_a_call_brought_is_kept_with_the_reads_it_came_in_and_no_key(
    tmp_path: Path,
) -> None:
    refusal = (
        b'HTTP/1.1 401 Unauthorized\r\ncontent-length: 40\r\n\r\n{"error":"wrong key '
        b'opaque-key-of-ours"}'
    )

    async def answer(peer: Peer) -> None:
        if peer.number == 1:
            await peer.answer()
        else:
            await peer.send(refusal)

    path = tmp_path / "leg001-7.raw.jsonl.zst"
    async with serving(answer) as server:
        with RawLog(path, which="all") as kept:
            async with Wire([Target(arm="a", url=server.url, api_key=KEY)], raw=kept) as wire:
                good = await wire.call(request(1))
                refused = await wire.call(request(2))
    first, second = lines(path)
    assert (first["request_id"], first["arm"], first["status"], second["status"]) == (
        "r1",
        "a",
        "ok",
        "http_error",
    )
    assert (good.status, refused.status) == ("ok", "http_error")
    text = str(first["raw"])
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert text.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    reads = first["reads"]
    assert isinstance(reads, list)
    assert sum(length for _, length in reads) == len(text)
    assert [at for at, _ in reads] == sorted(at for at, _ in reads)
    assert second["raw"] == refusal.decode().replace(KEY, "*" * len(KEY))
    assert KEY not in str(refused.error)


@pytest.mark.loopback
async def test_a_sessions_cookie_that_a_server_echoes_is_kept_nowhere(tmp_path: Path) -> None:
    async def answer(peer: Peer) -> None:
        told = f'{{"error":"who is {peer.request.headers.get("cookie", "that")}"}}'.encode()
        given = b"set-cookie: id=cookie-no-%d; Path=/" % peer.number
        await peer.send(
            b"HTTP/1.1 403 Forbidden\r\n%b\r\ncontent-length: %d\r\n\r\n%b"
            % (given, len(told), told)
        )

    path = tmp_path / "leg001-7.raw.jsonl.zst"
    async with serving(answer) as server:
        with RawLog(path, which="all") as log:
            async with Wire([Target(arm="a", url=server.url)], raw=log) as wire:
                found = [await wire.call(request(number)) for number in (1, 2)]
    assert server.requests[1].headers["cookie"] == "id=cookie-no-1"
    assert "cookie-no" not in f"{[outcome.error for outcome in found]} {lines(path)}"


@pytest.mark.loopback
async def test_a_key_that_was_renewed_while_its_call_was_on_is_kept_nowhere_either(
    tmp_path: Path,
) -> None:
    async def answer(peer: Peer) -> None:
        wire.renew([replace(target, api_key="another-key-of-ours")])
        told = f'{{"error":"expired: {peer.request.headers["authorization"].split()[1]}"}}'.encode()
        await peer.send(
            b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told)
        )

    path = tmp_path / "leg001-7.raw.jsonl.zst"
    async with serving(answer) as server:
        target = Target(arm="a", url=server.url, api_key=KEY)
        with RawLog(path, which="all") as kept:
            async with Wire([target], raw=kept) as wire:
                refused = await wire.call(request(1))
    assert refused.http_status == 401
    assert KEY not in f"{refused.error} {lines(path)}"


def kept(folder: Path, *pieces: bytes, sent: tuple[str, ...] = ()) -> str:
    """Keep an answer that came in these reads."""
    with RawLog(folder / "x", which="all") as log:
        log.keep(
            Target(arm="a", url="http://x/v1", api_key=KEY),
            "r1",
            Outcome(status="ok"),
            [(1, piece) for piece in pieces],
            also=sent,
        )
    (line,) = lines(folder / "x")
    return str(line["raw"])


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ((b"key opaque-", b"key-of-ours!"), "key ******************!"),
        (
            (b"key opaque-\r\n7\r\nkey-of-", b"\r\n00f;x=1\r\nours!"),
            "key *******\r\n7\r\n*******\r\n00f;x=1\r\n****!",
        ),
        (
            (b"x-opaque-\r\nkey-of-ours",),
            "x-opaque-\r\nkey-of-ours",
        ),  # a line break of the text's own: no key
        (
            (b"Set-Cookie: route=r", b"1; Path=/\r\nset-cookie: id=\r\n"),
            "Set-Cookie: route=**; Path=/\r\nset-cookie: id=\r\n",
        ),
        ((b"you sent cook", b"ie-of-ours as id"), "you sent ************** as id"),
    ],
)
def test_keys_and_cookies_are_overwritten_wherever_reads_and_chunks_part_them(
    tmp_path: Path, pieces: tuple[bytes, ...], told: str
) -> None:
    assert kept(tmp_path, *pieces, sent=("cookie-of-ours",)) == told


def test_a_key_that_the_bound_of_a_call_parts_is_overwritten_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_module, "MOST_OF_A_CALL", 8)
    assert kept(tmp_path, b"... ", KEY.encode()) == "... ****"


def test_failures_alone_are_kept_if_that_is_what_was_asked_for(tmp_path: Path) -> None:
    target = Target(arm="a", url="http://x/v1")
    with RawLog(tmp_path / "x", which="failures") as kept:
        kept.keep(target, "r1", Outcome(status="ok"), [(1, b"fine")])
        kept.keep(target, "r2", Outcome(status="garbage"), [(1, b"!!\xff"), (2, b"!!")])
    assert lines(tmp_path / "x") == [
        {
            "request_id": "r2",
            "arm": "a",
            "status": "garbage",
            "reads": [[1, 3], [2, 2]],
            "raw": "!!ÿ!!",
        }
    ]


def test_calls_and_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_module, "MOST_OF_A_CALL", 8)
    monkeypatch.setattr(raw_module, "MOST_OF_A_FILE", 150)
    target = Target(arm="a", url="http://x/v1")
    with RawLog(tmp_path / "x", which="all") as kept:
        for number in range(10):
            kept.keep(target, f"r{number}", Outcome(status="ok"), [(1, b"0123456789")])
    found = lines(tmp_path / "x")
    assert [line["raw"] for line in found] == ["01234567"] * 2


def test_a_full_disk_is_told_as_something_that_can_be_mended() -> None:
    with RawLog(Path("/dev/full"), which="all") as kept, pytest.raises(StoreError) as caught:
        kept.keep(
            Target(arm="a", url="http://127.0.0.1:9/v1"), "r1", Outcome(status="ok"), [(1, b"x")]
        )
    assert (caught.value.message, caught.value.hint) == (
        "/dev/full: No space left on device",
        "free some disk space, or go on without --keep-raw",
    )
