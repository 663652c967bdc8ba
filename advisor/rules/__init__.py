"""One rule a file: the module docstring is its
message, `NEEDS` its inputs, `check` its judgement.
"""

BLOG = "vLLM blog, The State of FP8 KV-Cache and Attention Quantization in vLLM, 2026-04-22"
KERNELS = "aiconfigurator 095f58a, kernel tables of one attention layer, vLLM 0.24.0"
BACKENDS = "vLLM 0.33.0, attention backend selection"
LOAD = "vLLM blog 2026-04-22, load test: 0.63 of the modelled gain survived in both models"
