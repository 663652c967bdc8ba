"""Order the questions of an evaluation so that any part of them is a fair sample.

Every cell of task, length and depth comes in turn.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agentload.ask.asker import Asker, EndpointAnswer
from agentload.dispatch.naming import hex_name
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.errors import EndpointError, UsageError
from agentload.layout.cost import ANSWER_TOKENS, Prefill, asking_s, assumed_prefill_s
from agentload.layout.passages import Passages, own_passages, random_passages
from agentload.layout.timeline import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S
from agentload.model.record import Record
from agentload.prompts.count import count
from agentload.prompts.tokenizer import WORD_TOKENS, Exactness, Part, Tokenizer
from agentload.prompts.words import WORDS
from agentload.run.files import read_traces
from agentload.study.kinds import Ask
from agentload.tasks import Grade, Item, catalog
from agentload.tasks.known import Format, parse
from agentload.tasks.parts.custom import EXAMPLE
from agentload.tasks.parts.draw import together


class Question(Record):
    """Name one item of one task, which every arm is asked."""

    task: str
    context: int
    depth: float | None
    number: int
    repetition: int
    item: str
    """Name of the item among those of its task and length.

    Its repetitions bear the same name, and so do questions that share a context.
    """
    part: int | None = None
    """Which of the questions that share a context it is."""

    @property
    def behind(self) -> tuple[str, int, str, int]:
        """Key of its context."""
        return (self.task, self.context, self.item, self.repetition)


class QuestionSet(Record):
    """Hold the questions in order, with the functions that make and grade their items.

    Items come from the tasks of the catalog, or from a file of the user's.
    """

    order: tuple[Question, ...]
    item: Callable[[Question], Item]
    grade: Callable[[str, Question, Item], Grade]


class Asking(Record):
    """Specify which questions to ask."""

    tasks: tuple[str, ...]
    contexts: tuple[int, ...]
    depths: tuple[float, ...]
    items: int
    """Number of different items; each is asked `repetitions` times."""
    repetitions: int = 1
    seed: int = 0
    """Seed of the items: another seed makes other items."""
    together: int = 1
    """Parts of a context, each with a question of its own."""
    each: int | None = None
    """How many parts are asked about; None: all."""

    def questions(self) -> tuple[Question, ...]:
        """Return the questions in the order in which they are asked."""
        return tuple(self._in_order())

    @property
    def _cells(self) -> int:
        return (
            len(self.tasks)
            * len(self.contexts)
            * ((self.each or self.together) if self.together > 1 else len(self.depths))
        )

    @property
    def forms(self) -> frozenset[tuple[str, float | None]]:
        """Names of items up to their number, each with the depth of its questions."""
        if self.together > 1:
            parts = range(self.together)
            return frozenset((self._shared_name, self._middle(part)) for part in parts)
        at_depths = ((self._name_at(place), depth) for place, depth in enumerate(self.depths))
        return frozenset(((self._name, None), *at_depths))

    @property
    def _name(self) -> str:
        return f"s{self.seed}-"

    @property
    def _shared_name(self) -> str:
        return f"{self._name}x{self.together}-"

    def _name_at(self, place: int) -> str:
        return f"{self._name}d{place:02}-"

    def _middle(self, part: int) -> float:
        return round((part + 0.5) / self.together, 4)

    def parts(self, number: int) -> tuple[int, ...]:
        """Return which parts of a context are asked about; contexts in turn cover all parts."""
        each = self.each or self.together
        return tuple(sorted((number * each + part) % self.together for part in range(each)))

    def _in_order(self) -> Iterator[Question]:
        of_any_number = replace(self, items=0)
        for number in range(-(-self.items // self._cells)):
            left = self.items - number * self._cells
            for repetition in range(self.repetitions):
                yield from _round(of_any_number, number, repetition)[:left]

    def cell_by_cell(self, number: int, repetition: int) -> Iterator[Question]:
        """Yield a round's questions, one for every cell."""
        if self.together > 1:
            item = f"{self._shared_name}{number:04}"
            parts = [(part, self._middle(part)) for part in self.parts(number)]
            for task in self.tasks:
                for context in self.contexts:
                    for part, depth in parts:
                        yield Question(
                            task=task,
                            context=context,
                            depth=depth,
                            number=number,
                            repetition=repetition,
                            item=item,
                            part=part,
                        )
            return
        # The place moves slowest: a short round still holds every task at every length.
        for place, depth in enumerate(self.depths):
            for task in self.tasks:
                # A task without a depth gets as many items a length as the others.
                own = number if catalog.task(task).has_depth else number * len(self.depths) + place
                at = depth if catalog.task(task).has_depth else None
                name = self._name if at is None else self._name_at(place)
                for context in self.contexts:
                    yield Question(
                        task=task,
                        context=context,
                        depth=at,
                        number=own,
                        repetition=repetition,
                        item=f"{name}{own:04}",
                    )


@lru_cache(maxsize=256)
def _round(asking: Asking, number: int, repetition: int) -> tuple[Question, ...]:
    """Return a round's questions; the looks of a decision begin with the same rounds."""
    return tuple(asking.cell_by_cell(number, repetition))


def asking(
    *,
    tasks: Sequence[str],
    contexts: Sequence[int],
    depths: int,
    items: int | None,
    repetitions: int,
    seed: int,
    together: int = 1,
) -> Asking:
    """Return the checked questions to ask; without *items*, one for every cell.

    Raises `UsageError`.
    """
    named = tuple(dict.fromkeys(catalog.task(name).name for name in tasks))
    for name, value in (
        ("--depths", depths),
        ("--repetitions", repetitions),
        ("--items", 1 if items is None else items),
    ):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    places: tuple[float, ...] = (0.5,)
    if depths > 1:
        places = tuple(round(place / (depths - 1), 4) for place in range(depths))
    count = items
    if count is None:
        each = together if together > 1 else len(places)
        count = len(named) * len(contexts) * each
    return Asking(
        tasks=named,
        contexts=tuple(contexts),
        depths=places,
        items=count,
        repetitions=repetitions,
        seed=seed,
        together=together,
    )


def subject_of(study: Ask) -> Passages:
    """Return the prompts and lengths that a study is about.

    They are those of its trace's calls, else drawn words at the lengths that it names.
    """
    if study.traces:
        return own_passages(read_traces(study.traces)[0])
    return random_passages(study.contexts, seed=study.seed)


def asking_of(study: Ask) -> Asking:
    """Return what a study asks."""
    return asking(
        tasks=study.tasks,
        contexts=subject_of(study).lengths,
        depths=study.depths,
        items=study.items,
        repetitions=study.repetitions,
        seed=study.seed,
        together=study.per_context,
    )


def catalog_questions(
    asking: Asking, *, lengths: Mapping[str, Tokenizer] = MappingProxyType({})
) -> QuestionSet:
    """Return questions whose items are made from a seed; equal seeds give equal bytes.

    *lengths* say how many tokens a task's texts cost on the servers; without them, a word counts
    as a token.
    """

    def alone(question: Question, *, context: int, depth: float | None, number: int) -> Item:
        task = catalog.task(question.task)
        at = depth if task.has_depth else None
        return task.item(
            seed=asking.seed,
            context=context,
            depth=at,
            number=number,
            tokenizer=lengths.get(task.name, WORD_TOKENS),
        )

    def item(question: Question) -> Item:
        count = asking.together
        if count == 1:
            return alone(
                question, context=question.context, depth=question.depth, number=question.number
            )

        def parts(room: int) -> list[Item]:
            return [
                alone(question, context=room, depth=0.5, number=question.number * count + part)
                for part in range(count)
            ]

        room = question.context // count
        # Room for an answer is needed once, not in every part.
        spare = (count - 1) * parts(room)[0].output_tokens // count
        return together(parts(room + spare), task=question.task)[question.part or 0]

    return QuestionSet(
        order=asking.questions(),
        item=item,
        grade=lambda said, of, item: catalog.task(of.task).grade(said, item),
    )


def that_fit(asked: QuestionSet) -> QuestionSet:
    """Return the questions; raise `UsageError` if a task does not fit the shortest length."""
    shortest = min(asked.order, key=lambda each: each.context).context
    for question in {each.task: each for each in asked.order}.values():
        asked.item(replace(question, context=shortest, number=0, part=None))
    return asked


def digest(path: Path) -> str:
    """Return a digest of a file of items: a resumed run needs the very same items."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=EXAMPLE) from error


def own_questions(path: Path, *, repetitions: int, form: Format = "own") -> QuestionSet:
    """Read a file of items, each of which is graded in its own way.

    Raises `UsageError`.
    """
    try:
        lines = StringIO(path.read_text(encoding="utf-8-sig"))
        items = parse(lines, name=str(path), form=form)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=EXAMPLE) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text: {error.reason} in UTF-8", hint=EXAMPLE) from error
    order = (
        Question(
            task=each.task,
            context=each.context,
            depth=None,
            number=number,
            repetition=repetition,
            item=each.name,
        )
        for repetition in range(repetitions)
        for number, each in enumerate(items)
    )
    return QuestionSet(
        order=tuple(order),
        item=lambda question: items[question.number].item,
        grade=lambda said, question, _: items[question.number].grade(said),
    )


class QuestionsCost(Record):
    """Figures of a whole evaluation."""

    items: int
    questions: int
    """Items times repetitions times endpoints."""
    prompt_tokens: int
    minutes: float
    assumed: str


def questions_cost(
    asked: QuestionSet,
    *,
    arms: int,
    concurrency: int,
    thinking_tokens: int,
    prefill_s: Prefill = assumed_prefill_s,
    pace: float | None = None,
) -> QuestionsCost:
    """Estimate what all questions cost.

    *prefill_s* returns the seconds that a prompt takes; those asked before took *pace* times what
    is assumed.
    """
    questions = asked.order
    # A context that several questions share is read once.
    contexts = [context for _, context, *_ in dict.fromkeys(each.behind for each in questions)]
    seconds = asking_s(
        sum(map(prefill_s, contexts)),
        len(questions),
        arms=arms,
        concurrency=concurrency,
        thinking_tokens=thinking_tokens,
    )
    assumed = (
        f"{ASSUMED_PREFILL_TOKENS_PER_S:,.0f} prompt tokens a second, "
        f"{ASSUMED_TOKEN_S * 1000:g} ms a token, answers of {ANSWER_TOKENS}"
    )
    return QuestionsCost(
        items=len({(each.task, each.context, each.item, each.depth) for each in questions}),
        questions=len(questions) * arms,
        prompt_tokens=sum(contexts) * arms,
        minutes=seconds * (1.0 if pace is None else pace) / 60,
        assumed=assumed if pace is None else "the pace of those that the run has",
    )


SHORT: Final = 1024
LONG: Final = (6144, 3072, 1536)
"""Words of the longer of two counted prompts: the first of these that fits the window."""
SPARE: Final = 1.005
"""Factor by which the line may be wrong: a prompt one token too long is refused."""
_DEPTH: Final = 0.5


class ScaledTokens(Record):
    """Estimate a task's tokens as a line over its words.

    The line adds what the template adds to what a word of such texts costs.
    """

    around: int
    a_word: float
    exact: Exactness = "ratio"
    words: tuple[str, ...] = WORDS

    def frame(self, part: Part) -> int:
        """Count the tokens that the template adds once a prompt."""
        return self.around if part == "prompt" else 0

    def fit(self, tokens: int) -> int:
        """Return how many words come nearest to this many tokens."""
        return round(tokens / self.a_word)

    def cost(self, words: int) -> int:
        """Count the tokens of this many words."""
        return round(words * self.a_word)

    def count(self, text: str) -> int:
        """Estimate the tokens of any text of the task."""
        return math.ceil(len(text.split()) * self.a_word)


async def measure_lengths(
    endpoint: Endpoint, tasks: Sequence[str], *, seed: int
) -> dict[str, Tokenizer]:
    """Have the server count two short prompts a task.

    Raises EndpointError where it does not answer or does not count.
    """
    async with Asker(endpoint, served_model(endpoint, await identify(endpoint))) as asker:
        return dict(
            zip(
                tasks,
                await asyncio.gather(
                    *(_measured(asker, endpoint.name, task, seed) for task in tasks)
                ),
                strict=True,
            )
        )


def line(words: Sequence[int], tokens: Sequence[int]) -> ScaledTokens:
    """Lay a line through two prompts, rounded so that a resumed run makes the same bytes."""
    slope = (tokens[1] - tokens[0]) / (words[1] - words[0])
    return ScaledTokens(
        around=max(0, math.ceil(tokens[0] - slope * words[0])),
        a_word=math.ceil(1000 * SPARE * max(0.1, slope)) / 1000,
    )


def length_notes(lengths: Mapping[str, Tokenizer]) -> dict[str, object]:
    """Return what lengths rest on, for the record of the run."""
    return {
        task: [each.around, each.a_word] if isinstance(each, ScaledTokens) else each.exact
        for task, each in lengths.items()
    }


async def _measured(asker: Asker, endpoint: str, name: str, seed: int) -> ScaledTokens:
    task = catalog.task(name)

    async def counted(length: int) -> tuple[int, int]:
        item = task.item(
            seed=seed, context=length, depth=_DEPTH if task.has_depth else None, number=0
        )
        reply = await asker.ask(
            item.messages,
            tools=item.tools,
            output_tokens=1,
            seed=seed,
            request_id=hex_name("length", name, str(length)),
        )
        if not isinstance(reply, EndpointAnswer):
            raise EndpointError(
                f"{endpoint}: cannot measure how long '{name}' is: {reply.error}",
                hint="--tokenizer tokenizer.json",
            )
        if reply.prompt_tokens is None:
            raise EndpointError(
                f"{endpoint}: does not say how many tokens a prompt has",
                hint="--tokenizer tokenizer.json",
            )
        return count(item.messages, item.tools), reply.prompt_tokens

    short = await counted(SHORT)
    for length in LONG[:-1]:
        with suppress(EndpointError):
            return line(*zip(short, await counted(length), strict=True))
    return line(*zip(short, await counted(LONG[-1]), strict=True))
