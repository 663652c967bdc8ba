"""Compute KV-cache bytes, pages and pool tokens from a model's geometry, before anything runs.

`config` reads the geometry (a `ModelShape`: layer groups with their kinds) from
config.json or from a few figures; `gpus` and `pool` have the memory and the defaults
of servers. `layout` cuts a cache into equal pages as vLLM does, `pool` divides the
memory left by weights into those pages, and `compare` sets the formats of one model
side by side. `practice` applies published rules to the model's figures.

Formulas follow vLLM's source and are tested against pools that real servers logged.
"""
