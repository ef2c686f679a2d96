"""A context over MPI from Python, without mpi.h and without LD_LIBRARY_PATH: liblierne_mpi finds
liblierne beside itself, and the communicator is a Fortran handle.
Usage, under mpirun: mpi_binding.py LIBLIERNE_MPI
"""
import ctypes
import sys

MPICH_WORLD = 0x44000000


def main():
    mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
    lierne = ctypes.CDLL("liblierne.so.0")  # the one that was loaded with it
    lierne.lierne_last_error.restype = ctypes.c_char_p
    try:
        ctypes.c_int.in_dll(mpi, "ompi_mpi_comm_world")
        world = 0
    except ValueError:
        world = MPICH_WORLD
    provided, context = ctypes.c_int(), ctypes.c_void_p()
    mpi.MPI_Init_thread(None, None, 2, ctypes.byref(provided))
    status = mpi.lierne_context_create_mpi_fortran(ctypes.byref(context), world, None)
    if status != 0:
        print("FAIL", status, lierne.lierne_last_error())
        return 1
    rank = lierne.lierne_context_get_rank(context)
    ranks = lierne.lierne_context_get_world_size(context)
    status = lierne.lierne_context_destroy(context)
    mpi.MPI_Finalize()
    if rank == ranks - 1:
        print(f"rank {rank} of {ranks}")
    return status != 0


sys.exit(main())
