"""Serve the emulated engine behind an OpenAI-compatible
HTTP face, as vLLM 0.32 does down to the wire.
"""
