import gc

from agentload.live.sweeping import RARELY, swept_rarely


def test_garbage_is_left_alone_meanwhile_and_swept_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with swept_rarely():
        assert (gc.get_threshold()[0], gc.get_freeze_count() > 0) == (RARELY, True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
