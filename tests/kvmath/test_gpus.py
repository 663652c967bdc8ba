import pytest

from agentload.kvmath.gpus import NAMES, gpu_named


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("H100", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200-SXM"),
        ("H20", "H20"),
        ("GB200", "B200-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("cpu", None),
        ("XH100", None),
    ],
)
def test_a_gpu_is_known_by_what_drivers_and_clusters_call_it(said: str, name: str | None) -> None:
    found = gpu_named(said)
    assert (found.name if found else None) == name


def test_every_name_of_the_table_means_itself() -> None:
    assert [gpu.name for name in NAMES if (gpu := gpu_named(name))] == list(NAMES)
