from pathlib import Path

import pytest
import yaml

from advisor.policy import Policy, ServiceLimits
from agentload.errors import AgentloadError
from agentload.model.profile import Price
from agentload.verdict.policy import SHOWN, Setting, UserLoad, parse, read_policy


def test_a_policy_file_moves_thresholds_and_names_load_and_price(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "min_change: 0.05\nslos:\n  - {ttft_ms: 3000, share: 0.9}\n  - {workload: chat, "
        "tpot_ms: 30}\n"
        "load: {peak_agents: 42, spare_replicas: 1}\nprice: {usd_per_gpu_hour: 2.5, "
        "source: our contract}\n"
    )
    assert read_policy(file) == Setting(
        policy=Policy(
            min_change=0.05,
            slos=(
                ServiceLimits(ttft_ms=3_000.0, share=0.9),
                ServiceLimits(workload="chat", tpot_ms=30.0),
            ),
        ),
        load=UserLoad(peak_agents=42, spare_replicas=1),
        price=Price(usd_per_gpu_hour=2.5, source="our contract"),
        name=str(file),
    )


def test_what_a_file_does_not_say_is_this(tmp_path: Path) -> None:
    assert parse({}, at="p") == Setting(policy=Policy(), load=UserLoad(), price=None, name="p")
    assert (
        UserLoad().peak_agents,
        UserLoad().load_growth_per_month,
        UserLoad().spare_replicas,
        UserLoad().gpus_per_replica,
    ) == (None, None, 0, None)


def test_a_setting_that_never_decided_anything_is_passed_over() -> None:
    whole = parse({"max_foreign_share": 0.02, "min_change": 0.1}, at="p")
    assert whole.policy == Policy(min_change=0.1)


def test_an_empty_file_is_the_default_policy(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("# nothing\n")
    assert read_policy(tmp_path / "p.yaml").policy == Policy()


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        ({"min_chance": 0.1}, "p: unknown key 'min_chance'", "did you mean min_change?"),
        ({"load": {"agents": 3}}, "p: load: unknown key 'agents'", "did you mean peak_agents?"),
        (
            {"slos": [{"ttft_ms": 3}, {"x": 1}]},
            "p: slos[1]: unknown key 'x'",
            "its keys: workload, ttft_ms, tpot_ms, turn_ms, share",
        ),
        (
            {"slos": {"ttft_ms": 3}},
            "p: slos: expected a list",
            "slos: [{workload: chat, ttft_ms: 800}]",
        ),
        ({"min_change": "much"}, "p: Expected `float`, got `str`: `min_change`", SHOWN),
        (
            {"price": {"usd_per_gpu_hour": 2}},
            "p: price: Object missing required field `source`",
            SHOWN,
        ),
        ({"min_change": float("nan")}, "p: min_change must be a finite number, got nan", SHOWN),
        (
            {"price": {"usd_per_gpu_hour": float("inf"), "source": "x"}},
            "p: price.usd_per_gpu_hour must be a finite number, got inf",
            SHOWN,
        ),
        (["min_change"], "p: expected keys and values", None),
        (
            {"decide_by": "gpus"},
            "p: decide_by: gpus needs load.peak_agents",
            "load: {peak_agents: 400}",
        ),
    ],
)
def test_a_wrong_key_or_value_is_named(content: object, said: str, hint: str | None) -> None:
    with pytest.raises(AgentloadError) as caught:
        parse(content, at="p")
    assert caught.value.message == said
    assert hint is None or caught.value.hint == hint


def test_what_is_no_yaml_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a: [1\n")
    with pytest.raises(AgentloadError, match="not YAML"):
        read_policy(tmp_path / "p.yaml")


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AgentloadError, match="no such file"):
        read_policy(tmp_path / "p.yaml")


def test_the_policy_in_the_manual_is_read() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    written = parse(
        yaml.safe_load(manual.partition("```yaml\n")[2].partition("```")[0]), at="manual"
    )
    levels = (
        ServiceLimits(ttft_ms=3_000.0, share=0.95),
        ServiceLimits(workload="chat", ttft_ms=800.0, tpot_ms=30.0),
    )
    assert written.policy == Policy(slos=levels, decide_by="gpus")
    assert written.load == UserLoad(peak_agents=42, spare_replicas=1, gpus_per_replica=1)
