from __future__ import annotations

from dataclasses import asdict

from advisor.policy import Policy, ServiceLimits


def test_these_thresholds_decide_where_nobody_moves_them() -> None:
    assert asdict(Policy()) == {
        "min_change": 0.03,
        "counts": "both",
        "decide_by": None,
        "accuracy_margin": 0.03,
        "min_capacity_gain": 0.10,
        "alpha": 0.05,
        "planned_looks": False,
        "start_spread": 0.015,
        "position_spread": 0.005,
        "max_untested_share": 0.05,
        "max_untested_tokens": 0.10,
        "min_filled_share": 0.50,
        "capacity_binds_at": 0.80,
        "length_low": 0.90,
        "length_high": 1.10,
        "max_send_lag_ms": 5.0,
        "max_loop_stall_ms": 250.0,
        "max_coalesced_share": 0.05,
        "max_dropped_difference": 0.02,
        "max_dropped_share": 0.05,
        "slos": (),
    }


def test_a_workload_has_its_own_service_level_else_the_one_for_all() -> None:
    chat, every = ServiceLimits(workload="chat", ttft_ms=800.0), ServiceLimits(turn_ms=9_000.0)
    policy = Policy(slos=(every, chat))
    assert (policy.slo("chat"), policy.slo("rag"), policy.slo(None)) == (chat, every, every)
    assert Policy(slos=(chat,)).slo("rag") is None
    assert every.share == 0.95
