"""Functions that depend on nothing but what they are given, many at
once: on cores of this machine, or of every node of a Ray cluster.

Which core called a function makes no difference to what it returns, so that a node that is
lost has its calls made again elsewhere. What is measured is never made so: see `cluster`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from agentload.remote.cluster import joined


@contextmanager
def cores(on: str | None = None, *, processes: int | None = None) -> Iterator[Executor]:
    """Give what calls functions on so many processes of ours,
    or on all cores that the nodes of *on* have to give.

    Functions and what they are given are pickled, and every node must be able to
    import them. Processes start afresh: a copy of one with the threads of polars or
    DuckDB in it would wait for ever. Raises LaunchError where there is no cluster.
    """
    if on is None:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        with joined(on) as ray:
            yield _Nodes(ray)


class _Nodes(Executor):
    def __init__(self, ray: Any) -> None:  # noqa: ANN401  # a module
        self._task = ray.remote(num_cpus=1)(_called)

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:  # an executor's signature
        """Have some node call a function."""
        found: Future[Any] = self._task.remote(fn, *args, **kwargs).future()
        return found


# whatever the function takes and returns
def _called(function: Callable[..., Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
    return function(*given, **named)
