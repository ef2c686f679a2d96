"""Plans on device memory, called from Python: buffers that export DLPack of a CUDA device, and a stream. On the emulated
device, whose library the test calls by itself; ranks are processes of a node (arguments: the emulated device).

usage: launch 2 device.py build/emulated/libcuda.so.1"""
import ctypes
import sys

import numpy as np

import lierne
from lierne._arrays import _Tensor

cuda = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def must(error):
    assert error == 0, error


class Array:
    """An array of float32 in device memory. asked: what its last export was asked for."""

    def __init__(self, values):
        values = np.ascontiguousarray(values, np.float32)
        self.shape, self.asked = values.shape, None
        self._at = ctypes.c_void_p()
        must(cuda.cudaMalloc(ctypes.byref(self._at), ctypes.c_size_t(values.nbytes + 1)))
        must(cuda.cudaMemcpy(self._at, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), 1))
        self._sizes = (ctypes.c_int64 * len(self.shape))(*self.shape)
        self._tensor = _Tensor(self._at, 2, 0, len(self.shape), 2, 32, 1, self._sizes, None, 0)

    def __dlpack__(self, stream=None):
        self.asked = stream
        return _new(ctypes.addressof(self._tensor), b"dltensor", None)

    def numpy(self):
        out = np.empty(self.shape, np.float32)
        must(cuda.cudaMemcpy(ctypes.c_void_p(out.ctypes.data), self._at, ctypes.c_size_t(out.nbytes), 2))
        return out


def raises(kind, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}: {text}")


def rows(context):
    """Every rank's ghosts are rows of the next one; gradients meet in rows 0 and 1."""
    n, own = context.world_size, context.rank
    row = np.array([0, 1, 1, 4, 0])
    return lierne.References(context, 5, np.full(5, (own + 1) % n), row, "f32", row_shape=(3,)), row


def run(host, device, stream):
    n, own = host.world_size, host.rank
    (there, row), (here, _) = rows(device), rows(host)
    assert there.memory_kind == "cuda" and here.memory_kind == "host"
    x = np.arange(15, dtype=np.float32).reshape(5, 3) + 100 * own
    given, out = Array(x), Array(np.full((5, 3), -1))
    assert there.forward(given, out, stream) is out and given.asked == -1
    must(cuda.cudaStreamSynchronize(stream))
    expected = here.forward(x)
    assert np.array_equal(expected, x[row] - 100 * own + 100 * ((own + 1) % n))
    assert np.array_equal(out.numpy(), expected)
    request = there.begin(given, Array(x), "adjoint", stream)
    gradient = request.wait()
    must(cuda.cudaStreamSynchronize(stream))
    assert np.array_equal(gradient.numpy(), here.adjoint(x))
    most = there.reduce(given, "max", Array(x), stream)
    must(cuda.cudaStreamSynchronize(stream))
    assert np.array_equal(most.numpy(), here.reduce(x, "max", x.copy()))
    raises(TypeError, "out is None; the caller allocates outputs in cuda memory", there.forward, given, None, stream)
    raises(TypeError, "the input is a ndarray; it must export DLPack of cuda memory", there.forward, x, out, stream)
    raises(NotImplementedError, "stream is NULL", there.forward, given, out)
    raises(TypeError, "DLPack device 2; plans of this context take host memory", here.forward, Host(given))
    return 9


class Host:
    """Device memory that does not say so before it is asked."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self):
        return self._array.__dlpack__()


def main():
    stream = ctypes.c_void_p()
    with lierne.Context.node(name="host") as host, lierne.Context.node(name="device") as device:
        device.use_cuda()
        must(cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
        passed = run(host, device, stream.value)
    print(f"{passed} passed, 0 failed")


main()
