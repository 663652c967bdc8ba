import json
from dataclasses import replace

from agentload.serve.completions_face import CompletionsFace
from agentload.serve.exchange import Exchange
from agentload.serve.wanted import Wanted
from tests.serve.recorded_lines import event, lines, shape
from tests.serve.scripts import plain

PIECES = ("jor", "help", "ec", " callable", "AL")
EXCHANGE = Exchange(
    id="cmpl-8eec9fd029f9a8da",
    created=1795177585,
    model="tiny-auto",
    fingerprint="vllm-0.32.0-d2061d1d",
    wanted=Wanted(face="completions", model="tiny-auto", prompt=(10, 20, 30, 40, 50), stream=True, include_usage=True, token_ids=True),
    script=plain(PIECES, finish="length"),
    prompt_tokens=5,
    prompt_ids=(10, 20, 30, 40, 50),
)
SILENT = replace(EXCHANGE, wanted=replace(EXCHANGE.wanted, token_ids=False), prompt_ids=None)


def test_a_stream_with_token_ids_is_the_recorded_one_but_for_the_ids() -> None:
    face = CompletionsFace(EXCHANGE)
    first, _, last, usage = map(event, lines("completion.sse"))
    for ours, theirs in ((event(face.tokens(0, 1)), first), (event(face.tokens(4, 5)), last)):
        theirs["choices"][0]["token_ids"] = ours["choices"][0]["token_ids"]
        assert json.dumps(ours) == json.dumps(theirs)
    ours = event(face.closing(0)[0])
    assert ours["usage"].pop("prompt_tokens_details") == {"cached_tokens": 0}
    assert json.dumps(ours) == json.dumps(usage)


def test_a_completion_opens_with_its_first_token() -> None:
    assert CompletionsFace(EXCHANGE).opening() == b""


def test_the_fast_path_says_what_the_slow_one_says() -> None:
    with_ids, without = CompletionsFace(EXCHANGE), CompletionsFace(SILENT)
    for first, stop in ((0, 1), (1, 3), (4, 5)):
        slow = event(with_ids.tokens(first, stop))
        slow["choices"][0]["token_ids"] = slow["choices"][0]["prompt_token_ids"] = None
        assert json.dumps(event(without.tokens(first, stop))) == json.dumps(slow)


def test_log_probabilities_are_listed_by_token_with_their_offsets() -> None:
    face = CompletionsFace(replace(SILENT, wanted=replace(SILENT.wanted, top_logprobs=2)))
    found = event(face.tokens(1, 3))["choices"][0]["logprobs"]
    assert found["text_offset"] == [3, 7]
    assert found["tokens"] == ["help", "ec"]
    assert [list(top) for top in found["top_logprobs"]] == [["help", "ec"], ["ec", " callable"]]
    assert all(max(top.values()) == value for top, value in zip(found["top_logprobs"], found["token_logprobs"], strict=True))


def test_an_answer_in_one_piece_holds_all_tokens_and_counts() -> None:
    whole = json.loads(CompletionsFace(replace(SILENT, wanted=replace(SILENT.wanted, stream=False))).whole(2))
    assert whole["choices"][0]["text"] == "jorhelpec callableAL"
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert shape(whole["usage"]["completion_tokens"]) == "int"
