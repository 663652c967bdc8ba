"""Cut a KV cache into pages as vLLM does, so that one pool serves layers of every kind.

All pages have the same size. Layers of a kind form equal groups with one block table
each; a page holds one block of one group. If layers differ in bytes per token, the
smaller ones get larger blocks until their pages are as large; if that does not divide
evenly, their pages are padded. This is why skipping the windows of a 5:1 model gains
little: the FP8 block doubles, while five of six tables still hold windows at two bytes.
"""

from dataclasses import replace
from math import ceil, lcm

from agentload.errors import ProfileError
from agentload.model.kv import FORMATS, KvDtype
from agentload.model.profile import LayerGroup, LayerKind, ModelShape
from agentload.model.record import Record

_ENDLESS = 1 << 62
"""Tokens of a request that is longer than any window."""
PADDED_GROUP = 1.5
"""Below this ratio of layers, vLLM pads the smaller kind up to the larger.

12 + 13 layers become 13 + 13, not 12 + 24.
"""
MAMBA_BLOCK_STEP = 16
"""Tokens by which a hybrid's attention blocks grow until a page holds a mamba state."""
_GROWING: frozenset[LayerKind] = frozenset({"full", "mla"})


def token_bytes(group: LayerGroup, dtype: KvDtype) -> int:
    """Return the bytes of one token in one layer; 0 if the state does not grow."""
    if group.kind == "mamba":
        return 0
    kept = FORMATS[dtype]
    if kept.latent_bytes is not None:
        if group.kind != "mla":
            raise ProfileError(
                f"{dtype} stores MLA latents only", hint="use kv_dtype fp8 for other attention"
            )
        return kept.latent_bytes
    # A latent holds keys and values at once.
    width = group.head_dim * (1 if group.kind == "mla" else 2)
    head_bytes = width * kept.bits // 8 + kept.scale_bytes
    return group.kv_heads * head_bytes


def stored_dtypes(
    model: ModelShape, dtype: KvDtype, skip_layers: tuple[str, ...]
) -> tuple[tuple[LayerGroup, KvDtype], ...]:
    """Pair each layer group with its storage dtype: skipped layers keep that of the weights."""
    numbers = {int(name) for name in skip_layers if name.isdigit()}
    unknown = [name for name in skip_layers if not name.isdigit() and name != "sliding_window"]
    if unknown:
        raise ProfileError(
            f"cannot skip layers {', '.join(unknown)}", hint="sliding_window, or layer numbers"
        )
    pairs: list[tuple[LayerGroup, KvDtype]] = []
    for group in model.groups:
        if group.kind == "sliding" and "sliding_window" in skip_layers:
            skipped = group.layers
        else:
            skipped = _numbered(model, group, numbers)
        if skipped < group.layers:
            pairs.append((replace(group, layers=group.layers - skipped, numbers=()), dtype))
        if skipped:
            pairs.append((replace(group, layers=skipped, numbers=()), "auto"))
    return tuple(pairs)


def bytes_per_token(model: ModelShape, dtype: KvDtype, skip_layers: tuple[str, ...] = ()) -> int:
    """Return a token's bytes in the layers that keep every token: what decode reads."""
    return sum(
        group.layers * token_bytes(group, kept)
        for group, kept in stored_dtypes(model, dtype, skip_layers)
        if group.kind in {"full", "mla"}
    )


def _numbered(model: ModelShape, group: LayerGroup, numbers: set[int]) -> int:
    """Return how many layers of a group have one of the *numbers*."""
    if not numbers:
        return 0
    if group.numbers:
        return len(numbers.intersection(group.numbers))
    if len(model.groups) == 1:
        return sum(number < group.layers for number in numbers)
    raise ProfileError(
        f"model {model.name}: cannot skip layers by number, because its groups do not list theirs",
        hint="model.groups[].numbers",
    )


class BlockTable(Record):
    """Equal block tables: a request has one page for each block in each table."""

    kind: LayerKind
    count: int
    block_tokens: int
    window: int | None = None

    @property
    def grows(self) -> bool:
        """Whether a request needs more of these pages the longer it gets."""
        return self.kind in _GROWING

    def peak_pages(self, tokens: int, in_flight: int, *, prefix_caching: bool) -> int:
        """Return the most pages that one request of *tokens* holds in one table.

        *in_flight* is the tokens of a prefill chunk.
        """
        match self.kind:
            case "full" | "mla":
                return ceil(tokens / self.block_tokens)
            case "sliding":
                kept = min((self.window or 0) - 1 + in_flight, tokens)
                return ceil(kept / self.block_tokens) + 1
            case "chunked":
                kept = min((self.window or 0) + in_flight, tokens)
                return ceil(kept / self.block_tokens)
            case "mamba":
                return 2 if prefix_caching else 1

    def decode_pages(self, *, prefix_caching: bool) -> int:
        """Return a decoding request's fixed pages in one table; 0 if they grow.

        They are those of a request that is longer than any window.
        """
        if self.grows:
            return 0
        return self.peak_pages(_ENDLESS, 0, prefix_caching=prefix_caching)


class Layout(Record):
    """How a model's KV cache is cut into pages."""

    page_bytes: int
    """Bytes of one page: a block of all layers of a group."""
    tables: tuple[BlockTable, ...]
    prefix_caching: bool = True

    @property
    def block_tokens(self) -> int:
        """Tokens of a block over all growing tables: the step of growth and of prefix hits."""
        return lcm(*(table.block_tokens for table in self.tables if table.grows))

    @property
    def pages_per_block(self) -> int:
        """Pages of a block of `block_tokens` in all growing tables."""
        return sum(
            table.count * (self.block_tokens // table.block_tokens)
            for table in self.tables
            if table.grows
        )

    @property
    def fixed_pages(self) -> int:
        """Pages of a running request besides its growing blocks: windows and states."""
        return sum(
            table.count * table.decode_pages(prefix_caching=self.prefix_caching)
            for table in self.tables
        )

    def peak_pages(self, tokens: int, in_flight: int) -> int:
        """Return the most pages that one request of *tokens* can hold."""
        return sum(
            table.count * table.peak_pages(tokens, in_flight, prefix_caching=self.prefix_caching)
            for table in self.tables
        )


class _Spec(Record, kw_only=False):
    """Layers of one kind with the page of one layer."""

    group: LayerGroup
    block_tokens: int
    page_bytes: int


def layout(
    model: ModelShape,
    kv_dtype: KvDtype,
    *,
    skip_layers: tuple[str, ...] = (),
    block_tokens: int = 16,
    prefix_caching: bool = True,
) -> Layout:
    """Cut the KV cache of a model into pages.

    Where all layers keep every token, one table serves all of them.
    """
    pairs = [
        (group, token_bytes(group, dtype))
        for group, dtype in stored_dtypes(model, kv_dtype, skip_layers)
    ]
    if not any(group.kind in _GROWING for group, _ in pairs):
        raise ProfileError(
            f"model {model.name}: no layer keeps every token",
            hint="model.groups needs a full or mla group",
        )
    block = _hybrid_block(pairs, block_tokens)
    largest = max(size for _, size in pairs)
    specs = [_Spec(group, block, block * (size or largest)) for group, size in pairs]
    if all(spec.group.kind in _GROWING for spec in specs):
        table = BlockTable(kind=specs[0].group.kind, count=1, block_tokens=block)
        return Layout(
            page_bytes=sum(spec.group.layers * spec.page_bytes for spec in specs),
            tables=(table,),
            prefix_caching=prefix_caching,
        )
    specs = _same_page(specs)
    counts = [spec.group.layers for spec in specs]
    fewest, most = min(counts), max(counts)
    layers_per_group = most if most < fewest * PADDED_GROUP else fewest
    return Layout(
        page_bytes=layers_per_group * specs[0].page_bytes,
        tables=tuple(_tables(spec, layers_per_group) for spec in specs),
        prefix_caching=prefix_caching,
    )


def _hybrid_block(pairs: list[tuple[LayerGroup, int]], block_tokens: int) -> int:
    """Return the tokens of an attention block that is as large as a recurrent state.

    Without such states it is *block_tokens*.
    """
    state = max((group.state_bytes for group, _ in pairs if group.kind == "mamba"), default=0)
    if not state:
        return block_tokens
    step_bytes = MAMBA_BLOCK_STEP * max(size for _, size in pairs)
    steps = ceil(state / step_bytes)
    return max(block_tokens, MAMBA_BLOCK_STEP * steps)


def _same_page(specs: list[_Spec]) -> list[_Spec]:
    """Return the specs with pages of the largest: by larger blocks where they divide it evenly."""
    largest = max(spec.page_bytes for spec in specs)
    out = []
    for spec in specs:
        times, rest = divmod(largest, spec.page_bytes)
        block = spec.block_tokens if rest else spec.block_tokens * times
        out.append(replace(spec, page_bytes=largest, block_tokens=block))
    return out


def _tables(spec: _Spec, layers_per_group: int) -> BlockTable:
    """Return the tables of one kind of layer, one for each group of them."""
    group = spec.group
    return BlockTable(
        kind=group.kind,
        count=ceil(group.layers / layers_per_group),
        block_tokens=spec.block_tokens,
        window=group.window,
    )
