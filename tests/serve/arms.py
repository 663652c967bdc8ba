"""An arm that no deployment has, with steps as short or long as a test wants."""

from agentload.model.profile import ArmProfile, Gpu, LayerGroup, ModelShape, Server, StepTime


def arm(
    *,
    step_ms: float = 1.0,
    max_waiting: int | None = None,
    max_num_seqs: int = 256,
    name: str = "plain",
) -> ArmProfile:
    return ArmProfile(
        name=name,
        profile="synthetic",
        gpu=Gpu(
            name="none", memory_gib=80, bandwidth_tb_s=3, bf16_tflops=1000, compute_capability=90
        ),
        model=ModelShape(
            name="tiny",
            groups=(LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=64),),
            heads=1,
            max_len=8192,
        ),
        server=Server(
            software="vLLM 0.32.0",
            max_model_len=8192,
            kv_cache_memory_bytes=1 << 30,
            max_waiting=max_waiting,
            max_num_seqs=max_num_seqs,
        ),
        kv_dtype="bf16",
        step=StepTime(
            decode_ms=step_ms,
            decode_ms_per_token=0,
            prefill_ms_per_token=0,
            prefill_ms_per_pair=0,
            weights_ms=0,
        ),
        synthetic=True,
    )
