import asyncio
import json
from array import array
from pathlib import Path

from agentload.serve.faces import ChatFace, ServedRequest
from agentload.serve.stream import Log, Stream, Truth
from agentload.serve.wanted import Wanted
from tests.serve.recorded_lines import event
from tests.serve.scripts import plain

EXCHANGE = ServedRequest(
    id="chatcmpl-1",
    created=1,
    model="tiny",
    fingerprint="vllm",
    wanted=Wanted(face="chat", model=None, stream=True, include_usage=True),
    script=plain(("a", " b", " c", " d"), finish="length"),
    prompt_tokens=3,
)


class Pipe:
    """An outlet whose reader takes everything, or nothing while it is stuck."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.stuck = 0
        self.closed = False

    def write(self, data: bytes, /) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.stuck

    def is_closing(self) -> bool:
        return self.closed


def streamed(pipe: Pipe, *, is_chunked: bool = True) -> tuple[Stream, Log]:
    log = Log(request_id="1", arrived_ns=0)
    return Stream(ChatFace(EXCHANGE), pipe, log, tokens=4, is_chunked=is_chunked), log


def contents(written: bytes) -> list[str]:
    events = [line for line in written.split(b"\r\n") if line.startswith(b"data: {")]
    return [choice["delta"]["content"] for line in events for choice in event(line)["choices"]]


def test_the_role_chunk_leaves_together_with_the_first_token_in_one_write() -> None:
    pipe = Pipe()
    stream, _ = streamed(pipe)
    stream.start(0)
    stream.offer([10], [1])
    assert [contents(write) for write in pipe.written] == [["", "a"]]


def test_each_step_is_one_write_and_the_last_one_carries_usage_and_the_end_mark() -> None:
    pipe = Pipe()
    stream, log = streamed(pipe)
    for at in (10, 20, 30, 40):
        stream.offer([at], [1])
    assert [contents(write) for write in pipe.written] == [["", "a"], [" b"], [" c"], [" d"]]
    assert pipe.written[-1].endswith(b"data: [DONE]\n\n\r\n")
    assert (list(log.planned_ns), list(log.tokens), log.behind) == (
        [10, 20, 30, 40],
        [1, 1, 1, 1],
        0,
    )
    assert all(before <= after for before, after in zip(log.before_ns, log.after_ns, strict=True))


def test_nothing_is_written_while_the_reader_lags_and_then_all_tokens_ride_in_one_chunk() -> None:
    pipe = Pipe()
    stream, log = streamed(pipe)
    stream.offer([10], [1])
    pipe.stuck = 100
    stream.offer([20], [1])
    stream.offer([30], [1])
    assert len(pipe.written) == 1
    pipe.stuck = 0
    stream.offer([], [])
    assert contents(pipe.written[1]) == [" b c"]
    assert (list(log.planned_ns), list(log.tokens)) == ([10, 30], [1, 2])


def test_a_write_that_the_kernel_did_not_take_at_once_is_told() -> None:
    class Slow(Pipe):
        def write(self, data: bytes, /) -> None:
            super().write(data)
            self.stuck = 1

    stream, log = streamed(Slow())
    stream.offer([10], [1])
    assert log.behind == 1


async def test_the_end_waits_for_a_lagging_reader_but_not_for_one_that_has_gone() -> None:
    pipe = Pipe()
    stream, _ = streamed(pipe)
    stream.offer([10], [1])
    pipe.stuck = 1
    stream.offer([20], [3])
    waiting = asyncio.create_task(stream.finish())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    pipe.stuck = 0
    await waiting
    assert contents(pipe.written[-1]) == [" b c d"]

    gone = Pipe()
    stream, _ = streamed(gone)
    gone.stuck, gone.closed = 1, True
    stream.offer([20], [4])
    await stream.finish()
    assert gone.written == []


def test_http_1_0_readers_get_the_events_bare() -> None:
    pipe = Pipe()
    stream, _ = streamed(pipe, is_chunked=False)
    stream.offer([10], [4])
    assert pipe.written[0].startswith(b"data: ")
    assert pipe.written[0].endswith(b"data: [DONE]\n\n")


async def test_tokens_beyond_a_hold_wait_until_it_is_lifted() -> None:
    pipe = Pipe()
    stream, _ = streamed(pipe)
    stream.hold(2)
    stream.offer([10, 20, 30], [1, 1, 1])
    assert await stream.reach(2)
    assert [contents(write) for write in pipe.written] == [["", "a", " b"]]
    stream.offer([40], [1])
    await stream.finish()
    assert contents(pipe.written[1]) == [" c d"]


def test_emissions_that_leave_late_together_stay_events_of_their_own() -> None:
    pipe = Pipe()
    stream, log = streamed(pipe)
    stream.offer([10], [1])
    stream.offer([20, 30], [2, 1])
    assert [contents(write) for write in pipe.written] == [["", "a"], [" b c", " d"]]
    assert (list(log.planned_ns), list(log.tokens)) == ([10, 20, 30], [1, 2, 1])
    assert log.before_ns[1] == log.before_ns[2]


async def test_a_stream_that_was_given_up_reaches_nothing() -> None:
    stream, _ = streamed(Pipe())
    stream.give_up()
    assert not await stream.reach(1)


def test_a_truth_file_is_a_header_with_anchors_and_one_line_a_request(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "truth.jsonl", arm="p/a", speed=2.0)
    truth.add(Log(request_id="1", arrived_ns=5, planned_ns=array("q", [7]), end="done"))
    truth.add(Log(request_id="2", arrived_ns=6, end="left"))
    assert truth.write_one()
    assert not truth.write_one()
    truth.close()
    header, *logs = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines())
    assert {**header, "monotonic_ns": 0, "wall_ns": 0} == {
        "kind": "agentload-truth", "version": 1, "arm": "p/a", "speed": 2.0, "monotonic_ns": 0, "wall_ns": 0,
    }  # fmt: skip
    assert header["wall_ns"] > header["monotonic_ns"] > 0
    assert [(log["request_id"], log["end"], log["planned_ns"]) for log in logs] == [
        ("1", "done", [7]),
        ("2", "left", []),
    ]


def test_closing_writes_what_still_waits(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "truth.jsonl", arm="p/a", speed=1.0)
    for name in "abc":
        truth.add(Log(request_id=name, arrived_ns=0))
    truth.close()
    assert len((tmp_path / "truth.jsonl").read_text().splitlines()) == 4
