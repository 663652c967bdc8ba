"""Emulate an inference engine: scheduler, KV blocks, prefix cache, step time."""
