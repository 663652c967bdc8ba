"""Calibration is held against targets that it knows nothing
of: small vocabularies and templates of the families there are.
"""

import json
import pickle
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from jinja2 import TemplateError

from agentload.errors import UsageError
from agentload.model.trace import Segment
from agentload.model.walk import contexts
from agentload.prompts import local
from agentload.prompts.calibrate import Counter, Message, calibrate
from agentload.prompts.local import from_file
from agentload.prompts.renderer import Renderer
from agentload.prompts.words import WORDS
from agentload.workloads import catalog

JOINS_RESULTS = """\
{%- if tools %}<s>system
{{ messages[0].content if messages[0].role == 'system' }}You may call:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<e>
{% elif messages[0].role == 'system' %}<s>system
{{ messages[0].content }}<e>
{% else %}<s>system
You are a helpful assistant.<e>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}<s>user
{{ m.content }}<e>
{% elif m.role == 'assistant' %}<s>assistant
{{ m.content }}
{%- for c in m.tool_calls or [] %}
<call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>
{%- endfor %}<e>
{% elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}<s>user{% endif %}
<result>
{{ m.content }}</result>
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<e>
{% endif %}{% endif %}{% endfor %}<s>assistant
"""
TRIMS_ENDS = """\
<b>{%- for m in messages %}<h>{{ m.role }}</h>

{{ m.content | trim }}
{%- for c in m.tool_calls or [] -%}
{"name": "{{ c.function.name }}", "id": "{{ c.id }}", "parameters": {{ c.function.arguments | tojson }}}
{%- endfor %}<e>
{%- endfor %}
{%- if tools %}{% for tool in tools %}{{ tool | tojson(indent=4) }}{% endfor %}{% endif %}<h>assistant</h>

"""
REFUSES_TOOLS = """\
{%- if tools or messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif -%}
<b>{% for m in messages %}<start>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end>
{% endfor %}<start>model
"""


def vocabulary(known: Sequence[str]) -> Callable[[str], int]:
    """Split as BPE vocabularies do; a word that is not known costs two tokens."""
    split = re.compile(r"<[a-z/]+>| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9<]+|<|\s*\n+|\s+")
    cost = cache(lambda piece: 2 if piece.strip().isalpha() and piece.strip() not in known else 1)
    return lambda text: sum(map(cost, split.findall(text)))


def target(template: str, count_text: Callable[[str], int]) -> Counter:
    render = local._environment().from_string(template).render

    def count(messages: Sequence[Message], tools: Sequence[Message] | None) -> int | None:
        try:
            return count_text(
                render(messages=[local._called(message) for message in messages], tools=tools)
            )
        except TemplateError:
            return None

    return count


@cache
def prompts() -> list[tuple[Segment, ...]]:
    found = []
    for name in ("chat", "code", "rag", "reasoning"):
        trace = catalog.trace(name, seed=3, options={"sessions": 3})
        found += [
            context
            for session in trace.sessions
            for context in list(contexts(trace.header, session))[:6]
        ]
    return found


@pytest.mark.parametrize("template", [JOINS_RESULTS, TRIMS_ENDS])
def test_prompts_of_every_workload_have_the_lengths_the_target_counts(template: str) -> None:
    count = target(template, vocabulary(WORDS))
    measured = calibrate(count)
    assert (measured.exact, measured.words) == ("exact", WORDS)
    renderer = Renderer(seed=7, tokenizer=measured)
    for context in prompts():
        prompt = renderer.render(context, salt="s")
        assert prompt.tokens == count(
            json.loads(prompt.messages), None if prompt.tools is None else json.loads(prompt.tools)
        )
        # Only a last segment shorter than its frame makes a prompt longer than asked.
        asked = sum(segment.tokens for segment in context)
        assert asked <= prompt.tokens <= asked + 60
        assert prompt.tokens == asked or context[-1].tokens < 60


def test_a_template_without_tools_is_exact_for_what_it_takes() -> None:
    measured = calibrate(target(REFUSES_TOOLS, vocabulary(WORDS)))
    assert measured.exact == "exact"
    assert "tool" not in measured.frames


def test_words_that_cost_more_than_one_token_are_left_out() -> None:
    rare = {"zone", "core", "yard"}
    count = target(JOINS_RESULTS, vocabulary([word for word in WORDS if word not in rare]))
    measured = calibrate(count)
    assert measured.exact == "exact"
    assert set(WORDS) - set(measured.words) == rare


def test_a_vocabulary_of_other_pieces_is_met_within_two_per_cent_or_four_tokens_a_message() -> None:
    count = target(JOINS_RESULTS, lambda text: round(len(text) / 2.7))
    measured = calibrate(count)
    assert measured.exact == "ratio"
    renderer = Renderer(seed=7, tokenizer=measured)
    for context in prompts():
        prompt = renderer.render(context, salt="s")
        counted = count(
            json.loads(prompt.messages), None if prompt.tools is None else json.loads(prompt.tools)
        )
        assert counted == pytest.approx(
            sum(segment.tokens for segment in context), rel=0.02, abs=4 * len(context)
        )


def test_a_tokenizer_file_is_measured_with_the_template_beside_it(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=4_000, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([text for word in WORDS for text in (word, f" {word}")] * 9, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match="no chat template next to the tokenizer"):
        from_file(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TRIMS_ENDS, "bos_token": {"content": "<b>"}})
    )
    measured = from_file(tmp_path / "tokenizer.json")
    assert (measured.exact, measured.words) == ("exact", WORDS)
    assert measured.count("also area\n") == 3
    assert pickle.loads(pickle.dumps(measured)).count("also area\n") == 3  # workers are sent it


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="not a tokenizer"):
        from_file(tmp_path / "tokenizer.json")
