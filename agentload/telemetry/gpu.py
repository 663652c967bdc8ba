"""Read GPU figures from NVIDIA's library on this machine or from an exporter's page (DCGM).

A figure that is absent stays absent; it is never zero.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from agentload.exposition.text import samples
from agentload.model.record import Record

# For each exported name: our name and the factor to our
# unit. DCGM's memory is in MiB, its clocks in MHz.
EXPORTED: Final[Mapping[str, tuple[str, float]]] = {
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_bytes", float(1 << 20)),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_w", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_clock_mhz", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_c", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_busy", 0.01),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("gpu_throttle_reasons", 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("gpu_throttle_reasons", 1.0),
}

OF_AN_INSTANCE: Final = frozenset({"gpu_memory_bytes", "gpu_busy"})
"""Figures that DCGM knows for each part of a split GPU.

All others it knows for the whole GPU only, and repeats for each part.
"""
EXPORTERS: Final = frozenset(EXPORTED)
WHOLE: Final = "all"
BLANK: Final = 0x7FFFFFF0
"""Least value that means "unknown" to DCGM (`dcgm_structs.h`); no figure of ours is as large."""


class GpuSample(Record):
    """One figure of one GPU."""

    gpu: str
    name: str
    value: float
    instance: str | None = None
    """Part of a split GPU (MIG), or `WHOLE` for all its parts; None: the GPU is not split."""

    @property
    def labels(self) -> str:
        """Labels that distinguish the figure from others of its name, as JSON."""
        return json.dumps(
            {"gpu": self.gpu} if self.instance is None else {"gpu": self.gpu, "mig": self.instance}
        )

    def is_of(self, own: frozenset[str]) -> bool:
        """Return whether the figure is of these GPUs or `GPU/INSTANCE`s; () means all."""
        if not own or self.gpu in own:
            return True
        if self.instance == WHOLE:
            return any(each.partition("/")[0] == self.gpu for each in own)
        return f"{self.gpu}/{self.instance}" in own


def of_page(text: str) -> Iterator[GpuSample]:
    """Yield each GPU's figures from the page of an exporter, or of a Prometheus that has it.

    Raises ValueError for another page.
    """
    told: set[tuple[str, str]] = set()
    for sample in samples(text, EXPORTERS):
        if not abs(sample.value) < BLANK:  # drops NaN as well
            continue
        (name, factor), gpu, instance = (
            EXPORTED[sample.name],
            sample.labels.get("gpu", "0"),
            sample.labels.get("GPU_I_ID") or None,
        )
        if instance is not None and name not in OF_AN_INSTANCE:
            if (gpu, name) in told:
                continue
            told.add((gpu, name))
            instance = WHOLE
        yield GpuSample(gpu=gpu, name=name, value=sample.value * factor, instance=instance)


class Gpus:
    """Ask the GPUs of this machine; without NVIDIA's library or its driver there are none."""

    def __init__(self, nvml: Any = None) -> None:  # noqa: ANN401  # the library has no types
        """Use *nvml* in place of the library, if it is given."""
        self._nvml: Any = nvml or _library()
        self._handles: tuple[Any, ...] = ()
        if self._nvml is None:
            return
        try:
            self._nvml.nvmlInit()
            self._handles = tuple(
                map(self._nvml.nvmlDeviceGetHandleByIndex, range(self._nvml.nvmlDeviceGetCount()))
            )
        except self._nvml.NVMLError:  # the library without a driver
            self._handles = ()

    @property
    def count(self) -> int:
        """Number of GPUs that the library finds."""
        return len(self._handles)

    def samples(self) -> Iterator[GpuSample]:
        """Yield each GPU's present figures; those that a GPU does not report are left out."""
        for index, handle in enumerate(self._handles):
            for name, asked in self._questions(handle):
                try:
                    value = float(asked())
                except (self._nvml.NVMLError, AttributeError):  # the GPU, or the library
                    continue
                yield GpuSample(gpu=str(index), name=name, value=value)

    def _questions(
        self,
        handle: Any,  # noqa: ANN401  # the library has no types
    ) -> tuple[tuple[str, Callable[[], float]], ...]:
        nvml = self._nvml
        return (
            ("gpu_memory_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            ("gpu_power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            ("gpu_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            (
                "gpu_temperature_c",
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            ),
            ("gpu_busy", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("gpu_throttle_reasons", lambda: self._reasons(handle)),
        )

    def _reasons(self, handle: Any) -> float:  # noqa: ANN401  # no types
        """Return the bits that say why the clock is slowed.

        The library will lose the older name of this call, the only one that
        drivers before 535 know.
        """
        try:
            return float(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except (self._nvml.NVMLError, AttributeError):
            return float(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _library() -> ModuleType | None:
    try:
        return import_module("pynvml")
    except ImportError:
        return None
