"""What a failed batch says of the device: too little memory, or lost for this process. Reads what providers write."""

import re

from portcullis.errors import DeviceLost, EngineError, OutOfDeviceMemory

_MEMORY = re.compile(
    r"CUDA failure 2\b|CUDA_ERROR_OUT_OF_MEMORY|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|out of memory"
    r"|Failed to allocate memory for requested buffer|smaller than requested bytes",
    re.IGNORECASE,
)
_LOST = {  # errors of CUDA after which every call of the process fails
    "46": "the device is in use or gone",
    "100": "no device",
    "101": "no such device",
    "214": "uncorrectable error of its memory",
    "220": "uncorrectable error of NVLink",
    "700": "illegal address",
    "702": "launch timed out",
    "709": "its context was destroyed",
    "710": "assertion on the device",
    "714": "error of its stack",
    "715": "illegal instruction",
    "716": "misaligned address",
    "717": "invalid address space",
    "718": "invalid program counter",
    "719": "launch failure",
    "999": "unknown error",
}
_CODE = re.compile(r"CUDA failure (\d+)|CUDNN_STATUS_EXECUTION_FAILED|device (?:has been|is) lost", re.IGNORECASE)


def engine_error(error: Exception, num_images: int) -> EngineError:
    """The error of ours for one that a provider raised while it ran a batch."""
    text, kind = str(error), type(error).__name__
    if _MEMORY.search(text):
        return OutOfDeviceMemory(f"the device has too little memory for a batch of {num_images}")
    found = _CODE.search(text)
    if found is not None and (found[1] is None or found[1] in _LOST):
        reason = _LOST.get(found[1] or "", found[0])
        return DeviceLost(f"the device is lost, on a batch of {num_images}: {reason} ({kind})")
    return EngineError(f"the engine failed on a batch of {num_images}: {kind}")
