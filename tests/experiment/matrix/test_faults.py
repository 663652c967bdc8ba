import pytest

from agentload.experiment.matrix.faults import last_words

VLLM = """\
(APIServer pid=7) INFO 11-21 23:00:00 [api_server.py:1] vLLM API server version 0.32.0
(EngineCore pid=9) ERROR 11-21 23:00:05 [core.py:99] Traceback (most recent call last):
(EngineCore pid=9) ERROR 11-21 23:00:05 [core.py:99] ValueError: No common block size for 7
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (VLLM, "ValueError: No common block size for 7"),
        (
            "usage: vllm serve [options]\nvllm serve: error: unrecognized arguments: --frob\n\n",
            "vllm serve: error: unrecognized arguments: --frob",
        ),
        ("starting\nKilled\n", "Killed"),
        ("", "it said nothing"),
    ],
)
def test_a_server_that_ended_is_quoted_with_the_cause_that_it_told(log: str, said: str) -> None:
    assert last_words(log) == said
