"""Serve the emulated engine over an OpenAI-compatible HTTP API, like vLLM 0.32 on the wire."""
