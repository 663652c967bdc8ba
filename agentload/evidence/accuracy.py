"""Graded answers as paired tables: the same items, depths and repetitions on the reference and on another arm."""

from collections.abc import Iterator, Sequence
from itertools import chain

import duckdb
import numpy as np
import polars as pl

from advisor.evidence import AccuracyBucket
from agentload.model.controls import control_of

_KEY = ("task", "context_tokens", "item", "depth", "repetition")


def accuracy(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Sequence[str], reference: str
) -> tuple[tuple[AccuracyBucket, ...], tuple[AccuracyBucket, ...]]:
    """Return one bucket an arm, task and length, over the items that both sides answered.

    First those of the arms against the reference, then those of arms that were asked twice against themselves.
    """
    answers = connection.sql(
        """
        SELECT arm, task, context_tokens, item, depth, repetition, score, "right", is_garbage AS garbage FROM graded
        WHERE run_id = $run AND "right" IS NOT NULL
        """,
        params={"run": run_id},
    ).pl()
    by_arm = {str(arm): rows for (arm,), rows in answers.partition_by("arm", as_dict=True).items()}
    challenging = (_buckets(arm, by_arm.get(reference), by_arm.get(arm)) for arm in arms if arm != reference)
    controlling = (_buckets(arm, by_arm.get(arm), by_arm.get(control_of(arm))) for arm in arms)
    return tuple(chain.from_iterable(challenging)), tuple(chain.from_iterable(controlling))


def _buckets(arm: str, first: pl.DataFrame | None, second: pl.DataFrame | None) -> Iterator[AccuracyBucket]:
    if first is None or second is None:
        return
    paired = first.join(second, on=_KEY, how="inner", nulls_equal=True, suffix="_arm").sort(_KEY)
    for (task, tokens), rows in paired.group_by("task", "context_tokens", maintain_order=True):
        yield _bucket(arm, str(task), float(str(tokens)), rows)


def _bucket(arm: str, task: str, context_tokens: float, rows: pl.DataFrame) -> AccuracyBucket:
    left, right = rows["right"].to_numpy(), rows["right_arm"].to_numpy()
    graded = not rows["score"].has_nulls() and not rows["score_arm"].has_nulls()
    return AccuracyBucket(
        arm=arm,
        task=task,
        context_tokens=context_tokens,
        both=int(np.sum(left & right)),
        reference_only=int(np.sum(left & ~right)),
        arm_only=int(np.sum(~left & right)),
        neither=int(np.sum(~left & ~right)),
        reference_scores=rows["score"].to_numpy() if graded else None,
        arm_scores=rows["score_arm"].to_numpy() if graded else None,
        garbage=_count(rows["garbage_arm"]),
        reference_garbage=_count(rows["garbage"]),
        # Repetitions and depths of one item share its text.
        clusters=rows["item"].rank("dense").cast(pl.Int64).to_numpy(),
    )


def _count(flags: pl.Series) -> int | None:
    """Count what was noticed; None where nobody looked."""
    return None if flags.has_nulls() else int(flags.sum())
