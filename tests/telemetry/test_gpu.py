from __future__ import annotations

from types import SimpleNamespace

import pytest

from agentload.telemetry.gpu import Gpus, GpuSample, of_page

PAGE = """\
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",modelName="NVIDIA H100"} 512.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",modelName="NVIDIA H100"} 70.0
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0"} 1024
# TYPE DCGM_FI_DEV_MEM_CLOCK gauge
DCGM_FI_DEV_MEM_CLOCK{gpu="0"} 2619
"""


class _NvmlError(Exception):
    pass


class _Nvml:
    """One GPU that does not tell its power."""

    NVMLError = _NvmlError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    nvmlInit = staticmethod(lambda: None)  # noqa: N815  # the library's names
    nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)  # noqa: N815
    nvmlDeviceGetMemoryInfo = staticmethod(lambda _: SimpleNamespace(used=5 << 30))  # noqa: N815
    nvmlDeviceGetClockInfo = staticmethod(lambda _, __: 1980)  # noqa: N815
    nvmlDeviceGetTemperature = staticmethod(lambda _, __: 61)  # noqa: N815
    nvmlDeviceGetUtilizationRates = staticmethod(lambda _: SimpleNamespace(gpu=98))  # noqa: N815
    nvmlDeviceGetCurrentClocksThrottleReasons = staticmethod(lambda _: 4)  # noqa: N815

    @staticmethod
    def nvmlDeviceGetPowerUsage(_: object) -> int:  # noqa: N802  # as above
        raise _NvmlError


def test_an_exporters_page_gives_each_gpus_figures_in_our_units_and_nothing_else() -> None:
    assert list(of_page(PAGE)) == [
        GpuSample(gpu="0", name="gpu_power_w", value=512.5),
        GpuSample(gpu="1", name="gpu_power_w", value=70.0),
        GpuSample(gpu="0", name="gpu_memory_bytes", value=float(1 << 30)),
    ]


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    assert {each.name: each.value for each in Gpus(_Nvml()).samples()} == {
        "gpu_memory_bytes": float(5 << 30),
        "gpu_clock_mhz": 1980.0,
        "gpu_temperature_c": 61.0,
        "gpu_busy": 0.98,
        "gpu_throttle_reasons": 4.0,
    }


def test_a_library_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise _NvmlError

    monkeypatch.setattr(_Nvml, "nvmlInit", staticmethod(no_driver))
    gpus = Gpus(_Nvml())
    assert (gpus.count, list(gpus.samples())) == (0, [])
