"""Peak figures of server GPUs, found by the names that people, drivers and cluster labels use."""

import re
from typing import Final

from agentload.model.profile import Gpu

# Vendors' data sheets: name, pattern of other names, GiB as drivers report them, TB/s, dense TFLOP/s of BF16 and FP8, sm.
_TABLE: Final[tuple[tuple[str, str, float, float, float, float | None, int], ...]] = (
    ("H100-NVL", r"h100.*nvl", 93.6, 3.9, 835, 1671, 90),
    ("H100-PCIe", r"h100.*pcie", 79.6, 2.0, 756, 1513, 90),
    ("H100-SXM", r"h100(-sxm5?)?", 79.6, 3.35, 989, 1979, 90),
    ("H200-NVL", r"h200.*nvl", 140.4, 4.8, 835, 1671, 90),
    ("H200-SXM", r"h200(-sxm)?", 140.4, 4.8, 989, 1979, 90),
    ("H20", r"h20", 95.6, 4.0, 148, 296, 90),
    ("B200-SXM", r"g?b200(-sxm)?", 179.1, 8.0, 2250, 4500, 100),
    ("A100-40GB", r"a100.*40gb?", 40.0, 1.555, 312, None, 80),
    ("A100-80GB-PCIe", r"a100.*(pcie.*80gb?|80gb?.*pcie)", 80.0, 1.935, 312, None, 80),
    ("A100-80GB", r"a100", 80.0, 2.039, 312, None, 80),
    ("L40S", r"l40s", 45.0, 0.864, 362, 733, 89),
    ("L4", r"l4", 22.5, 0.3, 121, 242, 89),
    ("RTX-4090", r"rtx.*4090", 24.0, 1.008, 165, 661, 89),
    ("RTX-PRO-6000", r"rtx.*pro.*6000", 95.6, 1.792, 503, 1007, 120),
    ("MI300X", r"mi300x", 192.0, 5.3, 1307, 2615, 94),
)
NAMES: Final = tuple(row[0] for row in _TABLE)


def gpu_named(name: str) -> Gpu | None:
    """Return the GPU of a name such as `H100` or `NVIDIA-H100-80GB-HBM3`; None if it is not in the table."""
    for ours, pattern, memory_gib, bandwidth_tb_s, bf16, fp8, capability in _TABLE:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", name.lower()):
            return Gpu(
                name=ours,
                memory_gib=memory_gib,
                bandwidth_tb_s=bandwidth_tb_s,
                bf16_tflops=bf16,
                fp8_tflops=fp8,
                compute_capability=capability,
            )
    return None
