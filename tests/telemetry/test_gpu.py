from __future__ import annotations

from types import SimpleNamespace

import pytest

from agentload.telemetry.gpu import WHOLE, Gpus, GpuSample, of_page

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


SPLIT = """\
DCGM_FI_DEV_POWER_USAGE{gpu="0",GPU_I_PROFILE="1g.6gb",GPU_I_ID="3"} 52.6
DCGM_FI_DEV_POWER_USAGE{gpu="0",GPU_I_PROFILE="1g.6gb",GPU_I_ID="4"} 52.7
DCGM_FI_DEV_FB_USED{gpu="0",GPU_I_PROFILE="1g.6gb",GPU_I_ID="3"} 1
DCGM_FI_DEV_FB_USED{gpu="0",GPU_I_PROFILE="1g.6gb",GPU_I_ID="4"} 2
DCGM_FI_DEV_FB_USED{gpu="1"} 3
"""
MIB = float(1 << 20)


def test_instances_of_a_split_gpu_have_their_own_memory_and_one_power_between_them() -> None:
    """The exporter repeats for each instance what it knows of the whole GPU alone."""
    samples = list(of_page(SPLIT))
    assert samples == [
        GpuSample(gpu="0", name="gpu_power_w", value=52.6, instance=WHOLE),
        GpuSample(gpu="0", name="gpu_memory_bytes", value=MIB, instance="3"),
        GpuSample(gpu="0", name="gpu_memory_bytes", value=2 * MIB, instance="4"),
        GpuSample(gpu="1", name="gpu_memory_bytes", value=3 * MIB),
    ]
    assert [each.labels for each in samples[:2]] == [
        '{"gpu": "0", "mig": "all"}',
        '{"gpu": "0", "mig": "3"}',
    ]
    by_own = {
        own: [each for each in samples if each.is_of(frozenset(own.split()))]
        for own in ("", "0", "0/4", "1", "0/3 1")
    }
    assert by_own == {
        "": samples,
        "0": samples[:3],
        "0/4": [samples[0], samples[2]],
        "1": samples[3:],
        "0/3 1": [*samples[:2], samples[3]],
    }


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    assert {each.name: each.value for each in Gpus(_Nvml()).samples()} == {
        "gpu_memory_bytes": float(5 << 30),
        "gpu_clock_mhz": 1980.0,
        "gpu_temperature_c": 61.0,
        "gpu_busy": 0.98,
        "gpu_throttle_reasons": 4.0,
    }


class _Newer(_Nvml):
    """The library and a driver that know the newer name."""

    nvmlDeviceGetCurrentClocksEventReasons = staticmethod(lambda _: 0x20)  # noqa: N815  # as above


class _Silent(_Nvml):
    @staticmethod
    def nvmlDeviceGetCurrentClocksThrottleReasons(_: object) -> int:  # noqa: N802
        raise AttributeError


def test_why_a_gpu_is_slow_is_asked_by_either_name() -> None:
    told = [
        {each.name: each.value for each in Gpus(nvml()).samples()}.get("gpu_throttle_reasons")
        for nvml in (_Nvml, _Newer, _Silent)
    ]
    assert told == [4.0, 32.0, None]


def test_a_library_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise _NvmlError

    monkeypatch.setattr(_Nvml, "nvmlInit", staticmethod(no_driver))
    gpus = Gpus(_Nvml())
    assert (gpus.count, list(gpus.samples())) == (0, [])


def test_what_an_exporter_does_not_know_is_absent() -> None:
    blanks = ("NaN", "140737488355328", "9223372036854775794", "2147483632")
    page = "".join(
        f'DCGM_FI_DEV_SM_CLOCK{{gpu="{number}"}} {value}\n'
        for number, value in enumerate((*blanks, "1980"))
    )
    assert list(of_page(page)) == [GpuSample(gpu="4", name="gpu_clock_mhz", value=1980.0)]
