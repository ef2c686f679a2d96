"""Context.mpi on ranks of mpirun: a communicator of mpi4py where that is installed, and otherwise an
object with the one method that lierne calls."""
import ctypes
import os
import sys

import numpy as np

import lierne

MPICH_WORLD = 0x44000000


class Alone:
    """MPI without mpi4py: started through the MPI that liblierne_mpi is linked with."""

    def __init__(self):
        path = os.path.join(os.path.dirname(lierne.__file__), "lib", "liblierne_mpi.so.0")
        self.mpi, provided = ctypes.CDLL(path), ctypes.c_int()
        self.mpi.MPI_Init_thread(None, None, 2, ctypes.byref(provided))

    def py2f(self):
        """The Fortran handle of MPI_COMM_WORLD."""
        return 0 if hasattr(self.mpi, "ompi_mpi_comm_world") else MPICH_WORLD

    def finalize(self):
        self.mpi.MPI_Finalize()


def world():
    """(a communicator, what ends MPI)"""
    try:
        from mpi4py import MPI
        return MPI.COMM_WORLD, lambda: None  # mpi4py ends MPI itself
    except ImportError:
        alone = Alone()
        return alone, alone.finalize


def main():
    comm, finalize = world()
    with lierne.Context.mpi(comm, timeout=30) as context:
        gathered = lierne.all_gather(context, 1, "i32").forward(np.int32([context.rank + 7]))
        assert gathered.tolist() == [7 + r for r in range(context.world_size)], gathered
        plan = lierne.References(context, 2, [1 - context.rank] * 2, [1, 1], "f64")
        assert plan.adjoint(np.array([1.0, 4.0]) + context.rank).tolist() == [0, 7 - 2 * context.rank]
        try:
            lierne.References(context, 2, [0], [5 if context.rank else 1], "f64")
            raise AssertionError("accepted")
        except lierne.errors.IndexRangeError as error:
            assert "5" in str(error), error
        last = context.rank == context.world_size - 1
    finalize()
    if last:
        print("1 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
