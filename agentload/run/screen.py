"""Carry out a screen, on servers side by side or in turn, or on profiles in virtual time."""

import asyncio
import json
import time
from array import array
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

from agentload.ask.asker import Failed
from agentload.ask.likely import Likely, Prompt, Scorer, TokenSource
from agentload.ask.screening import Passage, ScreenRun
from agentload.emulator.logprobs import (
    END,
    TAIL,
    Places,
    Ranking,
    after,
    likeliest_words,
    ranking,
    within,
)
from agentload.endpoints.counting import token_ids
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, kind_of, served_model
from agentload.layout.passages import Passages
from agentload.model.profile import ArmProfile
from agentload.prompts.renderer import Renderer
from agentload.run.arms import EMULATED_SPEED, read_arms, with_control
from agentload.run.ask import seen_again
from agentload.run.audience import Audience
from agentload.run.part import Notice, OpenPart, PartWork, load_run, look_at, part
from agentload.run.past import check_joined, past_answers
from agentload.run.place import StudyPlace
from agentload.run.questions import subject_of
from agentload.run.record import Stored, fingerprint
from agentload.run.servers import window, with_time_limit
from agentload.run.simulate import PART, simulated_id
from agentload.run.simulated_answers import description
from agentload.serve.wanted import word_ids
from agentload.store.loader import rewrite
from agentload.study.kinds import Ask
from agentload.study.parts import Virtual
from agentload.study.stored import Notes

BLOCK: Final = 16
"""Tokens of a cache block, where a server does not say."""
SALTS: Final = ("a", "b", "c")
MARKED: Final = 1024
"""Tokens between two marks in a prompt of the emulated model."""


def screen(study: Ask, place: StudyPlace, audience: Audience) -> Stored:
    """Screen the arms of a study, and store what was seen.

    Raises EndpointError where a server cannot be asked.

    A stop lets what is asked come to its answer, and nothing more is asked.
    """
    subject = subject_of(study)
    arms = read_arms(study.servers, is_timed=False)
    if isinstance(study.servers, Virtual):
        return Stored(run_id=_simulated(study, place, arms.profiles, subject, audience.say_step))
    with arms.up(noise=False, seed=study.seed, speed=EMULATED_SPEED) as found:
        served = with_time_limit(with_control(found, study.aa), study.timeouts)
        work = PartWork(
            study=study,
            endpoints=served,
            database=place.database,
            into=place.into,
            launching=arms.launching,
            notes=Notes(arms=tuple(each.name for each in served)),
        )
        leg = _Leg(
            work=work,
            run=place.name,
            subject=subject,
            notice=audience.notice,
            step=audience.say_step,
        )
        return asyncio.run(leg.play(audience))


@dataclass(slots=True, kw_only=True)
class _Leg:
    work: PartWork
    run: str
    subject: Passages
    notice: Notice
    step: Notice
    """Receives which prompt is asked."""
    _stops: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _under_way: ScreenRun | None = field(init=False, default=None)

    async def play(self, audience: Audience) -> Stored:
        with audience.stopping(self._stops.set):
            load_error = await self._play()
        return Stored(run_id=self.run, was_stopped=self._stops.is_set(), load_error=load_error)

    async def _play(self) -> str | None:
        work = self.work
        await look_at(work.database, notice=self.notice)
        names = tuple(each.name for each in work.endpoints)
        before = past_answers(work.database, self.run, names)

        def check(identities: Mapping[str, Identity]) -> None:
            if work.into is not None:
                check_joined(
                    before,
                    run_id=self.run,
                    arms=names,
                    kind=kind_of(identities) if identities else None,
                    database=work.database,
                )

        check({})
        async with part(
            work,
            self.run,
            before,
            first=names[0],
            is_added=work.into is not None,
            check=check,
            is_stopping=self._stops.is_set,
            notice=self.notice,
        ) as opened:
            relay = opened.relay
            if relay is None:
                await self._ask(work.endpoints, opened.met.identities, opened)
            else:
                for endpoint in work.endpoints:
                    up = await relay.up(endpoint.name)
                    served = replace(endpoint, log=up.endpoint.log)
                    await self._ask((served,), {endpoint.name: up.identity}, opened)
            opened.row = replace(opened.row, status="stopped" if self._stops.is_set() else "done")
        return await load_run(self.run, work.database, notice=self.notice)

    async def _ask(
        self, served: tuple[Endpoint, ...], identities: Mapping[str, Identity], opened: OpenPart
    ) -> None:
        """Ask servers that run side by side.

        The first server of the run is the reference, and makes the prompts.
        """
        models = {each.name: served_model(each, identities[each.name]) for each in served}
        if self._under_way is None:
            self._under_way = await self._begun(served[0], models[served[0].name], identities)
        screening = self._under_way
        written = len(self._under_way.rows)
        async with AsyncExitStack() as open_:
            sources = {
                each.name: await open_.enter_async_context(Scorer(each, models[each.name]))
                for each in served
            }
            await screening.ask(sources)
        for row in screening.rows[written:]:
            opened.writer.append(row)
        for arm, now in (await seen_again(served, identities, notice=self.notice)).items():
            opened.writer.append(fingerprint(self.run, opened.row.leg, arm, now, moment="after"))

    async def _begun(
        self, reference: Endpoint, model: str, identities: Mapping[str, Identity]
    ) -> ScreenRun:
        longest = (window(identities.values(), self.work.endpoints) or 1 << 62) - 1
        numbers = range(len(self.subject.contexts))
        passages = [
            await asyncio.to_thread(_passage, self.subject, number, reference, model, longest)
            for number in numbers
        ]
        return ScreenRun(
            run=self.run,
            at_ns=time.time_ns(),
            reference=reference.name,
            passages=passages,
            lengths=self.subject.lengths,
            block=identities[reference.name].cache_block or BLOCK,
            listener=self.step,
            is_stopping=self._stops.is_set,
        )


def _passage(
    subject: Passages, number: int, endpoint: Endpoint | None, model: str, longest: int
) -> Passage:
    """Render a prompt after each salt, as token ids if the server states them, else words.

    *endpoint* None is the emulated model, whose long prompts are compared and cut as bytes.
    """
    salted: dict[str, Prompt] = {}
    renderer = Renderer(seed=subject.header.seed, block=subject.header.block)
    for salt in SALTS:
        prompt = renderer.render(subject.contexts[number], salt=f"screen {salt}")
        messages = json.loads(prompt.messages)
        tools = None if prompt.tools is None else json.loads(prompt.tools)
        words = [word for message in messages for word in str(message.get("content") or "").split()]
        ids = (
            array("Q", word_ids(words))
            if endpoint is None
            else token_ids(endpoint, model, messages, tools)
        )
        salted[salt] = " ".join(words[:longest]) if ids is None else ids[:longest]
    return Passage(number=number, salted=salted)


@dataclass(slots=True)
class _Writing:
    """Write prompts as text, one space between tokens, and hash it.

    Of a prompt that begins the one written before, only what is behind the last mark is hashed.
    """

    _prompt: Prompt = ()
    _text: bytes = b""
    _starts: Sequence[int] = ()
    """Where each token begins in the text."""
    _marks: list[blake2b] = field(default_factory=list)
    """Hashes of what is before each token that is a multiple of MARKED."""

    def behind(self, prompt: Prompt) -> Places:
        """Return the place right behind a prompt."""
        if prompt != self._prompt[: len(prompt)]:
            self._write(prompt)
        mark = (len(prompt) - 1) // MARKED
        begin, end = self._starts[mark * MARKED], self._starts[len(prompt)] - 1
        whole = self._marks[mark].copy()
        whole.update(self._text[begin:end] + END)
        last = list(map(str, prompt[-TAIL:]))
        return after(last, whole.digest(), [""], len(prompt))

    def _write(self, prompt: Prompt) -> None:
        words = list(map(str, prompt))
        self._prompt, self._text = prompt, " ".join(words).encode()
        self._starts = tuple(accumulate((len(word) + 1 for word in words), initial=0))
        self._marks.clear()
        digest = blake2b(digest_size=8)
        for begin, end in pairwise((*self._starts[::MARKED], len(self._text))):
            self._marks.append(digest.copy())
            digest.update(self._text[begin:end])


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """List the likely tokens of a profile's arm in virtual time.

    Requests that come at once are company for each other.
    """

    arm: ArmProfile
    seed: int
    writing: _Writing = field(default_factory=_Writing)
    """Shared by arms that are asked the same prompts."""
    _company: list[int] = field(default_factory=lambda: [0])
    _scored: dict[tuple[str, ...], Ranking] = field(default_factory=dict, init=False)
    """The prompt that was scored last: a longer list of its likely tokens may be wanted next."""

    async def behind(self, prompt: Prompt, *, most: int) -> Likely | Failed:
        """Return the *most* likely tokens after a prompt."""
        if most > self.arm.logprobs.most:
            return Failed(
                error=f"it lists {self.arm.logprobs.most} log probabilities at most",
                http_status=400,
            )
        company = self._company[0]
        self._company[0] += 1
        await asyncio.sleep(0)
        tokens = len(prompt)
        at = self.writing.behind(prompt)
        row = likeliest_words(self.arm, at, seed=self.seed, company=company, most=most)[0]
        self._company[0] -= 1
        return Likely(
            listed=dict(row), prompt_tokens=tokens, cached_tokens=(tokens - 1) // BLOCK * BLOCK
        )

    async def within(self, prompt: Prompt, *, most: int) -> tuple[Likely, ...] | Failed:
        """Return the *most* likely tokens at every place within a prompt but the first."""
        words = tuple(map(str, prompt))
        if words not in self._scored:
            self._scored.clear()
            self._scored[words] = ranking(self.arm, within(words), seed=self.seed, company=0)
        return tuple(
            Likely(listed=dict(row), prompt_tokens=len(words), cached_tokens=0)
            for row in self._scored[words].likeliest(most)
        )


def _simulated(
    study: Ask, place: StudyPlace, found: tuple[ArmProfile, ...], subject: Passages, step: Notice
) -> str:
    """Screen the arms of a profile by the log probabilities that it states; name the run."""
    run = place.into or place.run or simulated_id(study, found)
    arms = {arm.name: arm for arm in found}
    if place.into is not None:
        check_joined(
            past_answers(place.database, run, tuple(arms)),
            run_id=run,
            arms=tuple(arms),
            kind="simulated",
            database=place.database,
        )
    longest = min(arm.server.max_model_len for arm in found) - 1
    passages = [
        _passage(subject, number, None, "", longest) for number in range(len(subject.contexts))
    ]
    screening = ScreenRun(
        run=run,
        at_ns=0,
        reference=found[0].name,
        passages=passages,
        lengths=subject.lengths,
        block=BLOCK,
        listener=step,
    )
    writing = _Writing()
    sources: dict[str, TokenSource] = {
        name: Modelled(arm=arm, seed=study.seed, writing=writing) for name, arm in arms.items()
    }
    asyncio.run(screening.ask(sources))
    before = description(run, study, arms, place.database) if place.into is None else ()
    name = PART if place.into is None else "screen"
    rewrite((*before, *screening.rows), place.database, run_id=run, name=name)
    return run
