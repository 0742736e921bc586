"""A double of the graphics processor: ``_montgomery.cu`` compiled as C, its threads one after the other."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from fedsift.crypto.additive.cuda import Constants


@functools.cache
def _compiled(limbs: int) -> ctypes.CDLL:
    source = importlib.resources.files("fedsift.crypto.additive").joinpath("_montgomery.cu").read_text()
    folder = Path(tempfile.mkdtemp())
    library = folder / f"double{limbs}.so"
    command = ["cc", "-x", "c", "-O2", "-fPIC", "-shared", f"-DLIMBS={limbs}", "-o", str(library), "-"]
    subprocess.run(command, input=source.encode(), check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    library.unlink()
    folder.rmdir()
    return loaded


class DeviceDouble:
    """Arrays are NumPy's; ``started`` remembers which kernels ran."""

    xp = np

    def __init__(self) -> None:
        self.started: list[str] = []

    def run(self, kernel: str, limbs: int, constants: Constants, count: int, *arguments: object) -> None:
        self.started.append(kernel)
        library = _compiled(limbs)
        for name in ("modulus", "one", "inverse"):
            value = getattr(constants, name)
            ctypes.memmove(ctypes.addressof(ctypes.c_uint32.in_dll(library, name)), value.ctypes.data, value.nbytes)
        assert all(each.flags.c_contiguous for each in arguments if isinstance(each, np.ndarray))
        passed = [
            ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_int64(int(str(each)))
            for each in (*arguments, count)
        ]
        thread = ctypes.c_int64.in_dll(library, "fedsift_thread")
        for number in range(-(-count // 128) * 128):  # the last block has threads without work
            thread.value = number
            getattr(library, kernel)(*passed)

    def host(self, a: np.ndarray) -> np.ndarray:
        return np.asarray(a)
