"""Write a llama of random weights as a GGUF file, for llama.cpp:
`python -m benchmarks.random_gguf OUT`.

It takes the packages gguf and numpy.
"""

import sys

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, FEED, LENGTH = 64, 2, 4, 128, 512
WORDS = [
    "also",
    "area",
    "arts",
    "back",
    "been",
    "best",
    "both",
    "call",
    "came",
    "city",
    "come",
    "each",
    "else",
    "even",
    "ever",
    "face",
    "fact",
    "feel",
    "find",
    "form",
    "from",
    "give",
]
SPECIAL = ("<unk>", "<s>", "</s>")

tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *(f"▁{word}" for word in WORDS)]
kinds = [
    gguf.TokenType.UNKNOWN,
    *[gguf.TokenType.CONTROL] * 2,
    *[gguf.TokenType.BYTE] * 256,
    *[gguf.TokenType.NORMAL] * len(WORDS),
]
random = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return random.normal(0.0, 0.2, shape).astype(np.float32)


out = gguf.GGUFWriter(sys.argv[1], "llama")
out.add_name("tiny")
out.add_context_length(LENGTH)
out.add_embedding_length(WIDTH)
out.add_block_count(LAYERS)
out.add_feed_forward_length(FEED)
out.add_head_count(HEADS)
out.add_head_count_kv(HEADS)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_dimension_count(WIDTH // HEADS)
out.add_vocab_size(len(tokens))
out.add_tokenizer_model("llama")
out.add_token_list(tokens)
out.add_token_scores([-float(place) for place in range(len(tokens))])
out.add_token_types(kinds)
out.add_bos_token_id(1)
out.add_eos_token_id(2)
out.add_unk_token_id(0)
out.add_tensor("token_embd.weight", weights(len(tokens), WIDTH))
for layer in range(LAYERS):
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        out.add_tensor(f"blk.{layer}.{name}.weight", weights(WIDTH, WIDTH))
    out.add_tensor(f"blk.{layer}.ffn_gate.weight", weights(FEED, WIDTH))
    out.add_tensor(f"blk.{layer}.ffn_up.weight", weights(FEED, WIDTH))
    out.add_tensor(f"blk.{layer}.ffn_down.weight", weights(WIDTH, FEED))
    for name in ("attn_norm", "ffn_norm"):
        out.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, dtype=np.float32))
out.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
out.add_tensor("output.weight", weights(len(tokens), WIDTH))
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
