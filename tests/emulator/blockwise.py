"""The prefix cache as a queue of single blocks: slow, obvious, and what the fast one must equal."""

from __future__ import annotations

from dataclasses import dataclass

from agentload.emulator.calls import Run

Block = tuple[object, ...]


@dataclass(eq=False)
class Held:
    keys: list[Block]
    own: int


class BlockwisePool:
    def __init__(self, *, capacity: int, block_tokens: int) -> None:
        self.capacity = capacity
        self.block_tokens = block_tokens
        self.uses: dict[Block, int] = {}
        self.queue: list[Block] = []
        self.own = 0
        self.serial = 0

    def keys(self, content: tuple[Run, ...], tokens: int) -> list[Block]:
        text = [(identity, offset) for identity, length in content for offset in range(length)][
            :tokens
        ]
        size = self.block_tokens
        return [tuple(text[: (index + 1) * size]) for index in range(len(text) // size)]

    def used(self) -> int:
        return self.own + sum(1 for uses in self.uses.values() if uses)

    def lease(self, content: tuple[Run, ...], tokens: int) -> Held | None:
        hits: list[Block] = []
        for key in self.keys(content, tokens)[: (tokens - 1) // self.block_tokens]:
            if key not in self.uses:
                break
            hits.append(key)
        needed = -(-tokens // self.block_tokens) - len(hits)
        woken = sum(1 for key in hits if not self.uses[key])
        if self.used() + woken + needed > self.capacity:
            return None
        for key in hits:
            self.use(key)
        self.own += needed
        self.make_room()
        return Held(hits, needed)

    def computed(self, held: Held, content: tuple[Run, ...], tokens: int) -> None:
        for key in self.keys(content, tokens)[len(held.keys) :]:
            if key in self.uses:
                self.use(key)
            else:
                self.uses[key] = 1
            held.keys.append(key)
            held.own -= 1
            self.own -= 1

    def grow(self, held: Held, blocks: int) -> None:
        held.own += blocks
        self.own += blocks
        self.make_room()

    def release(self, held: Held, content: tuple[Run, ...] | None, tokens: int) -> None:
        if content is not None:
            self.computed(held, content, tokens)
        self.own -= held.own
        for _ in range(tokens // self.block_tokens - len(held.keys)):
            self.serial += 1
            self.uses[(self.serial,)] = 0
            self.queue.append((self.serial,))
        for key in reversed(held.keys):
            self.uses[key] -= 1
            if not self.uses[key]:
                self.queue.append(key)

    def use(self, key: Block) -> None:
        if not self.uses[key]:
            self.queue.remove(key)
        self.uses[key] += 1

    def make_room(self) -> None:
        while self.own + len(self.uses) > self.capacity:
            del self.uses[self.queue.pop(0)]
