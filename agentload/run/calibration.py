"""Write what calibrates an FP8 KV cache: prompts sampled from a trace and a script.

The prompts have the trace's own lengths; the script calls llm-compressor. The recipe is that of
vLLM's documentation (docs/features/quantization/quantized_kvcache.md), for what the cache keeps:
scales of keys and values from observed activations, the weights left as they are. Queries keep
vLLM's own scale: llm-compressor 0.14 bypasses the observer of queries and saves uninitialised
memory in its place. The published examples calibrate on 2,048 tokens of chat; agents live at many
times that, and keys of late positions are not those of early ones.
"""

from collections.abc import Iterator
from importlib.resources import files
from random import Random
from typing import Final, Literal, TypeAlias

from agentload.model.record import Record
from agentload.model.trace import Header, Segment, Trace, total_tokens
from agentload.model.walk import contexts
from agentload.prompts.renderer import Renderer

Strategy: TypeAlias = Literal["tensor", "attn_head"]

SALT: Final = "calibration"
TEMPLATE_TOKENS: Final = 512
"""Room for what a chat template puts around a prompt."""


class CalibrationSample(Record):
    """Hold contexts sampled from a trace's calls, each call with the same chance."""

    header: Header
    contexts: tuple[tuple[Segment, ...], ...]
    calls: int
    """Calls of the whole trace."""

    @property
    def longest(self) -> int:
        """Tokens of the longest context."""
        return max((total_tokens(context) for context in self.contexts), default=0)

    @property
    def literal_share(self) -> float:
        """Share of the tokens whose words the trace kept; the other words are drawn."""
        whole = sum(map(total_tokens, self.contexts))
        kept = sum(
            segment.tokens
            for context in self.contexts
            for segment in context
            if segment.text is not None
        )
        return kept / whole if whole else 0.0

    def lines(self) -> Iterator[bytes]:
        """Yield the prompts as JSON lines."""
        renderer = Renderer(seed=self.header.seed, block=self.header.block)
        for context in self.contexts:
            prompt = renderer.render(context, salt=SALT)
            tools = b"" if prompt.tools is None else b',"tools":' + prompt.tools
            yield b'{"messages":' + prompt.messages + tools + b"}\n"


def draw_sample(trace: Trace, count: int, *, seed: int) -> CalibrationSample:
    """Draw *count* calls of a trace, which is read once; images are left out."""
    rng = Random(seed)
    kept: list[tuple[Segment, ...]] = []
    calls = 0
    for session in trace.sessions:
        for context in contexts(trace.header, session):
            spoken = tuple(segment for segment in context if segment.role != "image")
            if not any(segment.role != "tools" for segment in spoken):
                continue
            # Each of n calls seen so far is among the kept ones with the chance count / n.
            place = len(kept) if len(kept) < count else int(rng.random() * (calls + 1))
            calls += 1
            if place < len(kept):
                kept[place] = spoken
            elif len(kept) < count:
                kept.append(spoken)
    return CalibrationSample(header=trace.header, contexts=tuple(kept), calls=calls)


def script(
    sample: CalibrationSample,
    *,
    model: str,
    strategy: Strategy,
    prompts: str,
    output: str,
    trace: str,
) -> str:
    """Return a Python script that calibrates *model* on a file of prompts and saves it."""
    text = (files("agentload.run") / "calibration.txt").read_text(encoding="utf-8")
    return text.format(
        model=model,
        strategy=strategy,
        prompts=prompts,
        output=output,
        trace=trace,
        count=len(sample.contexts),
        calls=sample.calls,
        longest=sample.longest + TEMPLATE_TOKENS,
    )
