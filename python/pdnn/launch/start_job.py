"""Where a job begins: mpiexec, told to end when the process that started it does, whatever its end was.

Run as a file, ``python -I -S start_job.py PARENT MPIEXEC …``, hence the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; elsewhere a killed parent leaves its job running

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(sys.argv[1]):  # else the parent was gone before
        os.execv(sys.argv[2], sys.argv[2:])
