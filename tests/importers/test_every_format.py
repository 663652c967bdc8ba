"""What holds for all formats: nothing said leaves the source,
damage is survived, and what comes out can be read back and played.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentload.cli.trace.importing import _lines
from agentload.errors import AgentloadError, TraceError
from agentload.importers import catalog
from agentload.importers.catalog import conversion
from agentload.importers.parts.intake import Texts, read_texts, texts_path
from agentload.importers.parts.notes import Tolerance
from agentload.model.trace import Session
from agentload.tracefile import lines, read, write
from agentload.tracefile.check import check
from tests.importers.importing import KEY, assert_ordered
from tests.importers.samples import SECRETS, laid_out, samples

with tempfile.TemporaryDirectory() as _scratch:
    SAMPLES = samples(Path(_scratch))
SPOKEN = frozenset(
    {
        "claude_code",
        "codex",
        "litellm",
        "openai_chat",
        "openclaw",
        "openclaw_cache_trace",
        "otel",
        "pi",
        "swe_agent",
        "tau_bench",
    }
)
every_format = pytest.mark.parametrize("name", SAMPLES)


@every_format
def test_the_format_is_recognised(name: str, tmp_path: Path) -> None:
    assert catalog.likeliest_format(laid_out(tmp_path, SAMPLES[name])) == name


@every_format
def test_what_comes_out_is_a_trace_that_reads_back_equal(name: str, tmp_path: Path) -> None:
    made = conversion(laid_out(tmp_path / "in", SAMPLES[name]), key=KEY)
    write(tmp_path / "out.jsonl", made.trace)
    again = list(read(tmp_path / "out.jsonl").sessions)
    assert again
    assert again == list(made)
    assert_ordered(again)
    assert made.summary.ideal_source in {None, made.summary.ideal_import}
    report = check(read(tmp_path / "out.jsonl"))
    assert (report.problems, report.off_order) == ((), 0)


def grams(texts: Iterable[str], size: int = 8) -> Iterator[str]:
    """Yield every run of characters of a text."""
    for text in texts:
        for start in range(max(1, len(text) - size + 1)):
            yield text[start : start + size]


LONG = frozenset(gram for gram in grams(SECRETS) if len(gram) == 8)
SHORT = frozenset(grams(SECRETS)) - LONG


def leaked(out: str) -> list[str]:
    """Return what of the secrets stands in a text."""
    return [*LONG.intersection(grams([out])), *(text for text in SHORT if text in out)]


@every_format
def test_no_eight_characters_of_the_source_leave_it(name: str, tmp_path: Path) -> None:
    """Neither in the trace nor in what is said of the
    import, places aside, which are the user's own paths.
    """
    made = conversion(laid_out(tmp_path, SAMPLES[name]), key=KEY)
    out = b"".join(lines(made.trace)).decode() + "\n".join(_lines(made.summary, texts=None))
    assert not leaked(out)


@every_format
def test_words_go_into_a_file_of_their_own_when_they_are_asked_for(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl.zst"
    with texts_path(path).open("wb") as file:
        made = conversion(laid_out(tmp_path / "in", SAMPLES[name]), key=KEY, texts=Texts(file))
        out = b"".join(lines(made.trace)).decode()
    assert not leaked(out)
    texts = read_texts(texts_path(path))
    keys = {str(segment.key) for session in made for turn in session.turns for segment in turn.add}
    if name in {"lmcache", "vllm_log"}:  # whose contexts are blocks and not messages
        assert texts
    elif name in SPOKEN:
        assert len(texts.keys() & keys) > 1
        assert any(text in secret for text in texts.values() for secret in SECRETS)
    else:
        assert not texts.keys() - keys


def test_two_imports_have_no_name_in_common(tmp_path: Path) -> None:
    keys = []
    for secret in (b"one", b"two"):
        made = conversion(laid_out(tmp_path, SAMPLES["openai_chat"]), key=secret)
        keys.append(
            {segment.key for session in made for turn in session.turns for segment in turn.add}
        )
    assert keys[0]
    assert not keys[0] & keys[1]


def survived(
    folder: Path, name: str, files: dict[str, str | bytes], tolerance: Tolerance
) -> list[Session]:
    """Import something damaged; an error for the user is a way to survive it."""
    try:
        return list(conversion(laid_out(folder, files), key=KEY, format=name, tolerance=tolerance))
    except AgentloadError:
        return []


def damaged(content: str | bytes, cut: float, flips: list[tuple[float, int]]) -> bytes:
    """Cut a file and turn some of its bytes over."""
    found = bytearray(content.encode() if isinstance(content, str) else content)
    for at, value in flips:
        found[int(at * (len(found) - 1))] ^= value
    return bytes(found[: round(cut * len(found))])


shares = st.floats(0, 1)
flips = st.lists(st.tuples(shares, st.integers(1, 255)), max_size=4)


@every_format
@given(
    cut=st.just(1.0) | shares,
    flips=flips,
    tolerance=st.sampled_from(["normal", "lenient", "strict"]),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_that_were_cut_or_damaged_are_survived(
    name: str, tmp_path: Path, cut: float, flips: list[tuple[float, int]], tolerance: Tolerance
) -> None:
    first, *others = SAMPLES[name]
    files = {first: damaged(SAMPLES[name][first], cut, flips)} | {
        other: SAMPLES[name][other] for other in others
    }
    sessions = survived(tmp_path, name, files, tolerance)
    assert_ordered(sessions)
    for session in sessions:
        assert session.turns
        for turn in session.turns:
            assert turn.output >= 0
            assert all(segment.tokens >= 0 for segment in turn.add)


@every_format
def test_a_file_that_is_still_written_gives_what_is_there(name: str, tmp_path: Path) -> None:
    """Cut in the middle of its last line, which normal tolerance
    counts, a log gives at most what the whole one gives.
    """
    first = next(iter(SAMPLES[name]))
    content = SAMPLES[name][first]
    if isinstance(content, bytes) or content.count("\n") < 2 or name in {"servegen", "access_log"}:
        pytest.skip("no log of a record a line")
    whole = sum(
        len(session.turns)
        for session in survived(tmp_path / "whole", name, SAMPLES[name], "normal")
    )
    cut = SAMPLES[name] | {first: content[: len(content.rstrip()) - 3]}
    made = conversion(laid_out(tmp_path / "cut", cut), key=KEY, format=name)
    assert whole - 1 <= sum(len(session.turns) for session in made) <= whole


FOREIGN: dict[str, bytes] = {
    "bytes": bytes(range(256)) * 8,
    "page": b"<!DOCTYPE html>\n<html><body><p>404: not found</p></body></html>\n",
    "empty objects": b"{}\n{}\n{}\n",
    "other objects": b'{"colour": "red"}\n{"sizes": [1, 2]}\n',
    "other table": b"colour,size,price\nred,1,2\nblue,2,3\n",
    "empty list": b"[]\n",
    "prose": b"These are words.\nThey are no log.\n",
    "blank lines": b"\n\n\n",
    "nothing": b"",
}


@every_format
@pytest.mark.parametrize("tolerance", ["normal", "lenient"])
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_another_kind_is_an_error_that_says_what_the_format_reads(
    name: str, content: bytes, tolerance: Tolerance, tmp_path: Path
) -> None:
    """Neither an empty trace nor, with --lenient, one of skipped records alone."""
    (tmp_path / "foreign").write_bytes(content)
    made = conversion([tmp_path / "foreign"], key=KEY, format=name, tolerance=tolerance)
    with pytest.raises(TraceError) as caught:
        list(made)
    assert caught.value.message.startswith(str(tmp_path / "foreign"))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"{name} (")
    assert f"; agentload trace import {name} says more" in caught.value.hint


@every_format
def test_a_file_of_another_format_names_that_format(name: str, tmp_path: Path) -> None:
    other = "azure" if name != "azure" else "pi"
    [file] = laid_out(tmp_path, SAMPLES[other])
    with pytest.raises(TraceError) as caught:
        list(conversion([file], key=KEY, format=name))
    assert caught.value.hint == f"it looks like {other}: agentload trace import {other} {file}"


def test_a_page_among_the_files_is_counted_and_the_others_are_imported(tmp_path: Path) -> None:
    paths = laid_out(tmp_path, SAMPLES["tau_bench"])
    (tmp_path / "page.json").write_bytes(FOREIGN["page"])
    made = conversion([*paths, tmp_path / "page.json"], key=KEY, format="tau_bench")
    assert list(made)
    assert made.summary.odd == (("a file without a JSON object", 1, f"{tmp_path / 'page.json'}:1"),)


def test_a_record_that_cannot_be_read_keeps_the_hint_that_leads_past_it(tmp_path: Path) -> None:
    [file] = laid_out(tmp_path, SAMPLES["mooncake"])
    file.write_text('{"comment": "made by hand"}\n' + file.read_text())
    with pytest.raises(TraceError, match=":1:") as caught:
        list(conversion([file], key=KEY, format="mooncake"))
    assert caught.value.hint is not None
    assert "--lenient" in caught.value.hint
    assert list(conversion([file], key=KEY, format="mooncake", tolerance="lenient"))


def test_the_manual_has_a_row_for_each_format_and_counts_them() -> None:
    manual = Path(__file__).parents[2] / "docs"
    rows = re.findall(r"^\| (`.*?) \|", (manual / "importing.md").read_text("utf-8"), re.MULTILINE)
    assert set(catalog.names()) <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    counted = f"[importing.md](importing.md): {len(catalog.names())} formats"
    assert counted in (manual / "README.md").read_text("utf-8")
