"""Trains Plimsoll's learned rate controller on the simulators that it is judged by."""

import os

# Small matrices gain nothing from threads, and the simulator has its own.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from .fleets import Fleets  # noqa: E402, who reads these does so once

__all__ = ["Fleets"]
