"""Call many pure functions at once, on cores of this machine or of a Ray cluster.

The result of a function does not depend on the core that called it, so the calls of a lost node
are made again elsewhere. Nothing that is measured runs this way: see `cluster`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from agentload.remote.cluster import join_cluster


@contextmanager
def cores(on: str | None = None, *, processes: int | None = None) -> Iterator[Executor]:
    """Give an executor with *processes* local processes, or with the free cores of *on*.

    Functions and their arguments are pickled, and every node must be able to import them. Local
    processes are spawned, not forked: a fork with the threads of polars or DuckDB in it would wait
    for ever. Raises LaunchError where there is no cluster.
    """
    if on is None:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        with join_cluster(on) as ray:
            yield _Nodes(ray)


class _Nodes(Executor):
    def __init__(self, ray: Any) -> None:  # noqa: ANN401  # a module
        self._task = ray.remote(num_cpus=1)(_called)

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:  # the signature of `Executor.submit`
        """Have a node call a function."""
        found: Future[Any] = self._task.remote(fn, *args, **kwargs).future()
        return found


# Typed as Any, as functions take and return anything.
def _called(function: Callable[..., Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
    return function(*given, **named)
