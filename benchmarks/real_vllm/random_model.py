"""Write a small model with random weights: real to a server in everything but what it says.

Run with the Python of the vLLM installation, which has torch and transformers: `python
random_model.py OUT llama|gemma3|gpt_oss WORDS`. WORDS is a file of words that shall cost one
token each, as they do in vocabularies of everyday size. --hidden and --layers make it larger.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|pad|>", "<|bos|>", "<|im_end|>", "<|im_start|>")
VOCABULARY = 4096
LENGTH = 32_768
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson + '\n' "
    "}}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['content'] is string %}{{ m['content'] }}"
    "{% elif m['content'] %}{% for p in m['content'] %}{{ p['text'] if p['type'] == 'text' "
    "else '' }}{% endfor %}{% endif %}"
    "{% for c in m.get('tool_calls') or [] %}{{ c['function'] | tojson }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HEAD = 64
COMMON = {
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, object]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rope_theta": 10_000.0,
    },
    # Five layers with a window to one without.
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 512,
        "query_pre_attn_scalar": 64,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "hidden_act": "silu",
        "swiglu_limit": 7.0,
        "attention_bias": True,
        "rope_theta": 150_000.0,
    },
}
# Which layers have a window, over and over.
PATTERNS = {
    "gemma3": ["sliding_attention"] * 5 + ["full_attention"],
    "gpt_oss": ["sliding_attention", "full_attention"],
}
LAYERS = {"gemma3": 6}
SPREAD = 0.08  # of the weights at a width of 256: wide enough that answers differ


def config(shape: str, hidden: int, layers: int | None) -> dict[str, object]:
    """Return a config.json."""
    count = layers or LAYERS.get(shape, 4)
    described = {
        "hidden_size": hidden,
        "intermediate_size": 256 if shape == "gpt_oss" else 2 * hidden,
        "num_hidden_layers": count,
        "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": hidden // HEAD // 2,
        **COMMON,
        **SHAPES[shape],
    }
    if pattern := PATTERNS.get(shape):
        described["layer_types"] = (pattern * count)[:count]
    return described


def write(out: Path, shape: str, words: list[str], *, hidden: int, layers: int | None) -> None:
    """Write configuration, tokenizer and weights."""
    write_tokenizer(out, words, length=LENGTH)
    ours = json.dumps(config(shape, hidden, layers), indent=1)
    (out / "config.json").write_text(ours)
    _weights(out, SPREAD * (256 / hidden) ** 0.5)
    # Saving rewrote it in its own words; every reader shall see ours.
    (out / "config.json").write_text(ours)
    (out / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})
    )


def write_tokenizer(
    out: Path, words: list[str], *, length: int, vocabulary: int = VOCABULARY
) -> None:
    """Write a tokenizer; tokens beyond those that words and prose
    take are filled up to *vocabulary*, so that each has a text.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=alphabet,
    )
    tokenizer.train_from_iterator(_texts(words), trainer)
    made = json.loads(tokenizer.to_str())
    known = made["model"]["vocab"]
    known |= {f"Ġrandom{number}": number for number in range(len(known), vocabulary)}
    (out / "tokenizer.json").write_text(json.dumps(made))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(described, indent=1))


def _weights(out: Path, spread: float) -> None:
    import torch  # type: ignore[import-not-found]  # of the vLLM installation
    import transformers  # type: ignore[import-not-found]  # as above

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(out), dtype=torch.float32
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, spread)
    model.to(torch.bfloat16).save_pretrained(out)


def _texts(words: list[str]) -> Iterator[str]:
    for _ in range(200):
        yield " ".join(words) + "\n" + "\n".join(words) + "\n"
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[
        :60
    ]:  # prose and code that every Python has
        yield path.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("words", type=Path)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 128")
    parser.add_argument("--layers", type=int)
    given = parser.parse_args()
    write(
        given.out,
        given.shape,
        given.words.read_text(encoding="utf-8").split(),
        hidden=given.hidden,
        layers=given.layers,
    )
