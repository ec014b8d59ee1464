"""The driver of GPUs that tests script, for the whole program too."""

from collectors.gpu.conftest import driver, nvml_library

__all__ = ["driver", "nvml_library"]
