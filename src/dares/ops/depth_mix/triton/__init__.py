"""Depth mixing in Triton kernels, forward and backward. Imported when it is asked for."""

try:
    import triton  # noqa: F401
except ImportError as error:
    raise ValueError(
        "the triton backend needs Triton, which is not installed: pip install 'dares[triton]'"
    ) from error

from dares.ops.depth_mix.triton.mixer import TritonMixer, obstacle

__all__ = ["TritonMixer", "obstacle"]
