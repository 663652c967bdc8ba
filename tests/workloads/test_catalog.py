import pytest

from agentload.errors import UsageError
from agentload.plugins import summary
from agentload.tracefile import lines
from agentload.workloads import catalog


@pytest.mark.parametrize("name", catalog.names())
def test_a_workload_has_help_options_with_defaults_and_prefixes(name: str) -> None:
    made = catalog.workload(name)
    assert summary(made.help).endswith(".")
    assert len(summary(made.help)) < 100
    assert all(option.default is not option.type for option in made.options)
    assert all(segments for segments in made.prefixes.values())


@pytest.mark.parametrize("name", catalog.names())
def test_equal_seeds_give_equal_bytes_and_other_seeds_others(name: str) -> None:
    trace = catalog.trace(name, seed=7, options={"sessions": 12})
    first = b"".join(lines(trace))
    assert (
        b"".join(lines(trace))
        == first
        == b"".join(lines(catalog.trace(name, seed=7, options={"sessions": "12"})))
    )
    assert b"".join(lines(catalog.trace(name, seed=8, options={"sessions": 12}))) != first


@pytest.mark.parametrize(
    ("name", "options", "message", "hint"),
    [
        ("rga", {}, "no workload 'rga'", "did you mean rag?"),
        (
            "rag",
            {"pasages": "6"},
            "workload 'rag' has no option 'pasages'",
            "did you mean passages?",
        ),
        (
            "rag",
            {"sessions": "-1"},
            "rag: sessions: Expected `int` >= 1, got '-1'",
            "the default is 1000",
        ),
        (
            "rag",
            {"documents": "1.5"},
            "rag: documents: Expected `float` <= 1.0, got '1.5'",
            "the default is 0.2",
        ),
        (
            "rag",
            {"sessions": "many"},
            "rag: sessions: Expected `int`, got `str`, got 'many'",
            "the default is 1000",
        ),
    ],
)
def test_what_is_no_workload_or_option_is_named_with_what_comes_near(
    name: str, options: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        catalog.trace(name, seed=7, options=options)
    assert raised.value.message == message
    assert (raised.value.hint or "").startswith(hint)


def test_a_scale_multiplies_every_length_and_no_wait() -> None:
    plain, scaled = (
        list(catalog.trace("rag", seed=7, options={"sessions": 30}, ctx_scale=scale).sessions)
        for scale in (1.0, 0.5)
    )
    for before, after in zip(plain, scaled, strict=True):
        assert after.start_s == before.start_s
        for one, other in zip(before.turns, after.turns, strict=True):
            assert (other.wait_s, other.output) == (one.wait_s, max(1, round(one.output / 2)))
            assert [segment.tokens for segment in other.add] == [
                max(1, round(segment.tokens / 2)) for segment in one.add
            ]
