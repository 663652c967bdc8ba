"""Options that hold equal on all arms what pool and answers depend on."""

from typing import Annotated, TypeAlias

import typer

Length: TypeAlias = Annotated[int | None, typer.Option(help="Pin the longest request, equal on all arms.")]
Batched: TypeAlias = Annotated[int | None, typer.Option(help="Pin max_num_batched_tokens, which the pool depends on too.")]
Memory: TypeAlias = Annotated[str | None, typer.Option(help="Pin the bytes of the KV pool: 40G.")]
Revision: TypeAlias = Annotated[str | None, typer.Option(help="Pin the commit of the model's weights on the hub.")]
