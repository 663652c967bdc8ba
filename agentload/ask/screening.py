"""Screen arms before they are graded: compare how likely the next tokens are on each.

A prompt is read into the cache once; then single tokens are asked for after many
of its places, so that each reads the stored cache. A place is one token past a
whole block: only that token is computed. The reference is asked four times, to
know how far equal servers are apart on this very prompt: alone, in a
batch, under another salt, and both. An arm that fails is asked nothing more.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from agentload.ask.asker import Failed
from agentload.ask.likely import Likely, Prompt, TokenSource, agrees, longest_list, variation
from agentload.evidence.screen import SCREEN, breaks
from agentload.layout.passages import places
from agentload.model.record import Record
from agentload.model.rows import ProbeRow

SCORED_TO: Final = 8192
"""Longest prompt that is scored whole, as some servers score it in one piece."""
ROUNDING: Final = 1.01
"""A prompt may be this factor shorter than a length and still have that length."""
SCORES: Final = (1, 5)
"""Tokens asked for at each place of a scored prompt: servers have died of more."""
Variant: TypeAlias = Literal["alone", "batch", "salt", "both"]
VARIANTS: Final[Mapping[Variant, tuple[str, bool]]] = {
    "alone": ("a", False),
    "batch": ("a", True),
    "salt": ("b", False),
    "both": ("c", True),
}
"""For each variant its salt, and whether all places are asked for at once."""
STOPPED: Final = Failed(error="not asked, as the screen was stopped")


class Passage(Record):
    """One prompt as a server takes it, under each salt."""

    number: int
    salted: Mapping[str, Prompt]

    def cut(self, salt: str, tokens: int) -> Prompt:
        """Return the first *tokens* tokens of the prompt under a salt."""
        whole = self.salted[salt]
        if isinstance(whole, str):
            return " ".join(whole.split()[:tokens])
        return whole[:tokens]

    @property
    def tokens(self) -> int:
        """Number of tokens that the prompt has under every salt."""
        return min(
            len(each.split()) if isinstance(each, str) else len(each)
            for each in self.salted.values()
        )


@dataclass(slots=True, kw_only=True)
class ScreenRun:
    """Run the screen of one run, and keep the reference's answers until every arm was asked."""

    run: str
    at_ns: int
    """Wall clock, the same for all rows; 0 in virtual time."""
    reference: str
    passages: Sequence[Passage]
    lengths: tuple[int, ...]
    block: int
    listener: Callable[[str], None]
    is_stopping: Callable[[], bool] = lambda: False
    most: int = 0
    excused: dict[str, str] = field(default_factory=dict)
    """Arms that are asked nothing more, and why."""
    rows: list[ProbeRow] = field(default_factory=list)
    _said: dict[tuple[int, Variant], dict[int, Likely]] = field(default_factory=dict)
    _scored: dict[tuple[int, str], tuple[Likely, ...]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    async def meet(self, sources: Mapping[str, TokenSource]) -> None:
        """Find out how many tokens each server lists, with a short prompt."""
        short = self.passages[0].cut("a", 4 * self.block)
        for arm, source in sources.items():
            found = await longest_list(source, short)
            if isinstance(found, str):
                self.excuse(arm, found)
            else:
                self.most = min(self.most or found, found)

    async def ask(self, sources: Mapping[str, TokenSource]) -> None:
        """Ask servers that run at the same time about one prompt after the other."""
        await self.meet(sources)
        for passage in self.passages:
            open_sources = {
                arm: source
                for arm, source in sources.items()
                if arm not in self.excused and arm not in self._done
            }
            if not open_sources or self.is_stopping():
                break
            self.listener(
                f"screen: prompt {passage.number + 1} of {len(self.passages)}, "
                f"{passage.tokens:,} tokens"
            )
            await self._compare_all(open_sources, passage)
            others = set(sources) - {self.reference}
            if others and not others - self._done - set(self.excused):
                break
        for arm, source in sources.items():
            if arm not in self.excused and not self.is_stopping():
                await self._score(arm, source)

    async def _compare_all(self, sources: Mapping[str, TokenSource], passage: Passage) -> None:
        """Ask servers about one prompt, and note which of them are broken."""
        found = await asyncio.gather(
            *(self._passage(arm, source, passage) for arm, source in sources.items())
        )
        for arm, answers in zip(sources, found, strict=True):
            if answers is None or arm == self.reference:
                continue
            self._compare(arm, passage, answers)
            if breaks([row for row in self.rows if row.arm == arm]):
                self._done.add(arm)
                self.listener(f"screen: answers of {arm} are broken; it is asked nothing more")

    def excuse(self, arm: str, why: str) -> None:
        """Ask an arm nothing more, and keep the reason."""
        self.excused[arm] = why
        self.listener(f"screen: {arm} is not screened: {why}")
        self.rows.append(self._row(arm, {}, "not screened", {"reason": why}))

    async def _passage(
        self, arm: str, source: TokenSource, passage: Passage
    ) -> dict[int, Likely] | None:
        """Ask one server about one prompt, the reference in all variants.

        None if it failed, or was not asked all, as the screen is to stop.
        """
        first: dict[int, Likely] | None = None
        for variant, (salt, is_together) in VARIANTS.items():
            if variant != "alone" and arm != self.reference:
                break
            said = await self._told(arm, source, passage, salt, is_together=is_together)
            if said is None:
                return None
            first = first or said
            if arm == self.reference:
                self._said[passage.number, variant] = said
        return first

    async def _told(
        self, arm: str, source: TokenSource, passage: Passage, salt: str, *, is_together: bool
    ) -> dict[int, Likely] | None:
        wanted = [
            each for length in self._own_lengths(passage) for each in self._places(passage, length)
        ]

        async def told(tokens: int) -> Likely | Failed:
            if self.is_stopping():
                return STOPPED
            return await source.behind(passage.cut(salt, tokens), most=self.most)

        warm = await told(max(wanted))
        if is_together:
            answers = list(await asyncio.gather(*map(told, wanted)))
        else:
            answers = [warm if isinstance(warm, Failed) else await told(each) for each in wanted]
        if STOPPED in answers:
            return None
        if failed := next((each for each in (warm, *answers) if isinstance(each, Failed)), None):
            self.excuse(arm, failed.error)
            return None
        return {
            tokens: each
            for tokens, each in zip(wanted, answers, strict=True)
            if isinstance(each, Likely)
        }

    async def _score(self, arm: str, source: TokenSource) -> None:
        """Have a prompt scored, if the server can: its places are computed without the cache."""
        passage = self.passages[0]
        short = [each for each in self._own_lengths(passage) if each <= SCORED_TO]
        if not short or self.reference in self.excused:
            return
        length = short[-1]
        for salt in ("a", "b") if arm == self.reference else ("a",):
            for most in SCORES:
                said = await self._within(source, passage.cut(salt, length), most)
                if isinstance(said, Failed):
                    self.rows.append(
                        self._row(arm, {"path": "prompt"}, "not scored", {"reason": said.error})
                    )
                    return
                self._scored[passage.number, f"{arm} {salt}"] = said
        mine, base, again = (
            self._scored.get((passage.number, name))
            for name in (f"{arm} a", f"{self.reference} a", f"{self.reference} b")
        )
        if arm != self.reference and mine and base and again:
            # The two salts are in the first block, which is no place to compare.
            twice = zip(base[self.block :], again[self.block :], strict=False)
            own = _mean([variation(one.listed, other.listed) for one, other in twice])
            detail = _distance(list(zip(mine, base, strict=False)))
            detail |= {"own": [own], "cached": _cached(mine[:1])}
            settings = {"path": "prompt", "prompt": passage.number, "length": length}
            self.rows.append(self._row(arm, settings, "compared", detail))

    async def _within(
        self, source: TokenSource, prompt: Prompt, most: int
    ) -> tuple[Likely, ...] | Failed:
        return STOPPED if self.is_stopping() else await source.within(prompt, most=most)

    def _own_lengths(self, passage: Passage) -> tuple[int, ...]:
        """Return the lengths that a prompt has.

        A prompt may be slightly shorter than a length: a window's last token is left for an answer.
        """
        own = tuple(each for each in self.lengths if each <= passage.tokens * ROUNDING)
        return own or (passage.tokens,)

    def _places(self, passage: Passage, length: int) -> tuple[int, ...]:
        return places(min(length, passage.tokens), self.block)

    def _compare(self, arm: str, passage: Passage, answers: Mapping[int, Likely]) -> None:
        base = self._said.get((passage.number, "alone"))
        if base is None:
            return
        for length in self._own_lengths(passage):
            at = [each for each in self._places(passage, length) if each in answers]
            own = []
            for variant in VARIANTS:
                again = self._said.get((passage.number, variant))
                if variant != "alone" and again is not None:
                    far = [variation(base[each].listed, again[each].listed) for each in at]
                    own.append(_mean(far))
            detail = _distance([(answers[each], base[each]) for each in at])
            detail |= {
                "own": own,
                "cached": _cached([answers[each] for each in at]),
                "listed": self.most,
            }
            settings = {"path": "cache", "prompt": passage.number, "length": length}
            self.rows.append(self._row(arm, settings, "compared", detail))

    def _row(
        self, arm: str, settings: Mapping[str, object], outcome: str, detail: Mapping[str, object]
    ) -> ProbeRow:
        return ProbeRow(
            run_id=self.run,
            arm=arm,
            probe=SCREEN,
            at_ns=self.at_ns,
            settings=json.dumps(settings, sort_keys=True),
            outcome=outcome,
            detail=json.dumps(detail, sort_keys=True),
        )


def _distance(pairs: Sequence[tuple[Likely, Likely]]) -> dict[str, object]:
    return {
        "variation": _mean([variation(mine.listed, base.listed) for mine, base in pairs]),
        "agreement": _mean([float(agrees(mine.listed, base.listed)) for mine, base in pairs]),
        "places": len(pairs),
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 9)


def _cached(said: Sequence[Likely]) -> float | None:
    """Return the share of the prompts read from the cache; None if no server says."""
    told = [
        each.cached_tokens / each.prompt_tokens
        for each in said
        if each.cached_tokens is not None and each.prompt_tokens
    ]
    return _mean(told) if told else None
