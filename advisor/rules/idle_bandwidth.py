"""The attention kernel reads at under 60% of memory
bandwidth: part of the promised gain stays on the table.
"""

from collections.abc import Iterator

from advisor.case import Case
from advisor.rules import BLOG
from advisor.verdict import Finding

NEEDS = frozenset({"itl.bandwidth_tb_s", "evidence.deployment.gpu.hbm_tb_s"})

# the published slopes of full-speed kernels imply 75
# to 91% of peak, those of gpt-oss on H100 51 to 58%
LOW = 0.60


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding a challenger whose slope surely reads below the bound."""
    gpu = case.evidence.deployment.gpu
    for line in case.itl:
        bandwidth = line.bandwidth_tb_s
        if bandwidth is None or gpu.hbm_tb_s is None or line.arm == case.evidence.reference:
            continue
        peak = gpu.hbm_tb_s * case.evidence.deployment.tensor_parallel
        if bandwidth.is_below(LOW * peak):
            yield Finding(
                kind="informs",
                arm=line.arm,
                message=(
                    f"By how its time per output token grows with context, {line.arm} reads the "
                    f"cache at {bandwidth.value:.2f} TB/s, {bandwidth.value / peak:.0%} of the "
                    "peak: a better kernel would gain more."
                ),
                estimates=(bandwidth,),
                flips="a newer attention kernel: measure again after an upgrade",
                source=BLOG,
                leg="pays",
            )
