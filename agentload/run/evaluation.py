"""Lay out an evaluation on servers or on the arms of a profile, and ask its questions."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import restartable_server
from agentload.prompts.local import from_file
from agentload.prompts.tokenizer import Tokenizer
from agentload.run.arms import EMULATED_SPEED, Arms, read_arms, with_control
from agentload.run.ask import Eval, EvalPart, Evaluated, Listener
from agentload.run.audience import Audience, ending
from agentload.run.past import order_after, past_answers
from agentload.run.place import StudyPlace
from agentload.run.questions import (
    Asking,
    QuestionSet,
    asking_of,
    catalog_questions,
    digest,
    length_notes,
    measure_lengths,
    own_questions,
    that_fit,
)
from agentload.run.servers import for_questions
from agentload.run.simulated_answers import Answering, answer_all, answers_of
from agentload.study.kinds import Ask
from agentload.study.parts import Virtual
from agentload.study.stored import Notes

Evaluation: TypeAlias = Eval | Answering
"""Questions laid out for servers, or for the arms of a profile."""


@contextmanager
def evaluation(study: Ask, place: StudyPlace, *, is_dry: bool = False) -> Iterator[Evaluation]:
    """Yield an evaluation laid out on its arms; when *is_dry* nobody is started or asked."""
    if isinstance(study.servers, Virtual):
        yield answers_of(study, place)
        return
    arms = read_arms(study.servers)
    asking = asking_of(study)
    with arms.up(noise=False, seed=study.seed, is_dry=is_dry, speed=EMULATED_SPEED) as found:
        served = for_questions(with_control(found, study.aa), study.request, study.timeouts)
        # An emulated model's tokens are words: no server is asked how it counts.
        reference = None if is_dry or arms.is_emulated else served[0]
        questions, notes = _laid_questions(study, asking, arms, reference)
        names = tuple(each.name for each in served)
        if study.own is None and (place.into or place.resume):
            before = past_answers(place.database, place.name, names)
            questions = replace(questions, order=order_after(asking, before.answered))
        joined: Literal["new", "join"] = "join" if place.into else "new"
        yield Eval(
            run=place.name,
            study=study,
            asked=questions,
            endpoints=served,
            database=place.database,
            notes=msgspec.structs.replace(notes, arms=names),
            mode="resume" if place.resume else joined,
            launching=arms.launching,
        )


def _laid_questions(
    study: Ask, asked: Asking, arms: Arms, reference: Endpoint | None
) -> tuple[QuestionSet, Notes]:
    """Return the questions, and the notes about them to keep with the run."""
    if study.own is not None:
        own = Path(study.own)
        items = own_questions(own, repetitions=asked.repetitions, form=study.own_format)
        return items, Notes(digest=digest(own))
    lengths: dict[str, Tokenizer] = {}
    if study.tokenizer is not None:
        lengths = dict.fromkeys(asked.tasks, from_file(Path(study.tokenizer)))
    elif reference is not None:
        lengths = _measured(asked, arms, reference)
    # Stored notes have None in place of an empty mapping: these must equal them.
    notes = Notes(lengths=length_notes(lengths) or None)
    return that_fit(catalog_questions(asked, lengths=lengths)), notes


def _measured(asked: Asking, arms: Arms, reference: Endpoint) -> dict[str, Tokenizer]:
    """Have the reference count tokens, starting it if servers are started in turn."""
    if arms.launching is None:
        return asyncio.run(measure_lengths(reference, asked.tasks, seed=asked.seed))
    logs = arms.launching.logs / "lengths"
    start_s = arms.launching.start_s
    with restartable_server(reference, logs=logs, start_s=start_s) as server:
        server.up()
        return asyncio.run(measure_lengths(reference, asked.tasks, seed=asked.seed))


def ask(made: Evaluation, audience: Audience) -> Evaluated:
    """Ask one part's questions.

    A first stop lets what is in flight come to its end, a second cancels it.
    """
    if isinstance(made, Answering):
        return answer_all(made)

    async def play(listener: Listener | None) -> Evaluated:
        part = EvalPart(made, listener=listener or (lambda *_: None), notice=audience.notice)
        with ending(part.stop, audience):
            return await part.play()

    with audience.answers(made.asked.order, len(made.endpoints)) as listener:
        return asyncio.run(play(listener))
