"""No key, password or secret header is anywhere in what a run
leaves behind, also where the server echoes all that it was sent.
"""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import zstandard

from agentload.endpoints.read import read_file
from agentload.errors import EndpointError
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import ClosedLoop, Load
from agentload.model.rows import CallRow
from agentload.run.play import ReplayPart
from agentload.store import journal
from agentload.store.places import journal_folder, journals, raw_files
from agentload.study.change import extend
from tests.live.scripted import Peer, serving
from tests.run.playing import MODELS, STUDY, playing, trace

pytestmark = pytest.mark.loopback

# None looks like a key to a pattern: only knowing them keeps them out.
SECRETS = {
    "KEY": "plainkeyword",
    "TEAM_KEY": "tobeornottobe",
    "PRINTED": "expiresat noon",
    "PASSWORD": "open.sesame",
}


async def echo(peer: Peer) -> None:
    """List the model; refuse all else with everything that was sent."""
    if peer.request.line.split()[1].endswith("/models"):
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(MODELS), MODELS)
        )
        return
    # The key first: a message is cut before it is kept.
    told = sorted(
        peer.request.headers.items(),
        key=lambda each: each[0] not in {"authorization", "x-api-key", "x-team"},
    )
    sent = " ".join(value for _, value in told)
    body = json.dumps(
        {"error": {"message": f"{sent} said: {peer.request.body.decode()}", "type": "BadRequest"}}
    ).encode()
    await peer.send(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "
        b"%d\r\n\r\n%b" % (len(body), body)
    )


async def left_behind(folder: Path, arms: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Replay against the arms and return everything that
    was written: journals, database, raw bytes, notices.
    """
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (folder / "e.yaml").write_text(arms)
    endpoints = read_file(folder / "e.yaml")
    told: list[str] = [repr(endpoints)]
    made = plan(
        trace(),
        [each.name for each in endpoints],
        run="r1",
        scheme=Scheme(pairs=1),
        load=Load(arrivals=ClosedLoop(sessions=2)),
    )
    database = folder / "x.duckdb"
    await ReplayPart(
        playing(made, endpoints, database, study=extend(STUDY, on_dead="skip", keep_raw="all")),
        notice=told.append,
    ).play()
    rows = [row for path in journals(database, "r1") for row in journal.read(path)]
    errors = [row.error or "" for row in rows if isinstance(row, CallRow)]
    assert errors
    assert all(
        error.startswith("BadRequest: ") and len(error) <= len("BadRequest: ") + 200
        for error in errors
    )
    with_raw = [
        zstandard.ZstdDecompressor()
        .stream_reader(io.BytesIO(path.read_bytes()), read_across_frames=True)
        .read()
        for path in raw_files(database, "r1")
    ]
    assert with_raw
    bytes_ = [path.read_bytes() for path in (database, *journal_folder(database, "r1").iterdir())]
    return "\n".join(each.decode("latin-1") for each in (*bytes_, *with_raw)) + "\n".join(
        (*told, *map(str, map(dataclasses.asdict, rows)))
    )


ARMS = """
arms:
  env: {{url: {url}, key_env: KEY}}
  command: {{url: {url}, key_command: printenv PRINTED}}
  header_env: {{url: {url}, header_env: {{X-Api-Key: TEAM_KEY}}}}
  header: {{url: {url}, headers: {{X-Team: tobeornottobe}}}}
  in_url: {{url: {with_password}}}
  in_query: {{url: {url}, metrics: "{url}/metrics?token=queryword"}}
"""


async def test_what_authorises_us_is_nowhere_in_what_a_run_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(echo) as server:
        with_password = server.url.replace("http://", "http://me:open.sesame@")
        left = await left_behind(
            tmp_path, ARMS.format(url=server.url, with_password=with_password), monkeypatch
        )
    assert [
        secret
        for secret in (*SECRETS.values(), "queryword", "bWU6b3Blbi5zZXNhbWU")
        if secret in left
    ] == []  # base64 of me:open.sesame


async def test_a_proxys_password_is_in_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY", "http://me:open.sesame@127.0.0.1:9")
    with pytest.raises(EndpointError) as caught:
        await left_behind(
            tmp_path, "proxy_env: PROXY\narms: {a: {url: 'http://10.1.2.3/v1'}}", monkeypatch
        )
    assert "a: cannot reach http://10.1.2.3/v1/models" in caught.value.message
    assert (
        "open.sesame" not in f"{caught.value.message}{caught.value.hint}{caught.value.__cause__!r}"
    )
