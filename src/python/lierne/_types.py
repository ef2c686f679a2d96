"""Types of arguments and results. Checkers read them; at run time nothing does."""
import typing

import numpy as np
import numpy.typing as npt

# A dtype: lierne's name of it ("bf16"), or one of numpy, torch or jax.
DType = typing.Any
# Integers in host memory: a list, a numpy array, a tensor.
Integers = npt.ArrayLike
Shape = typing.Sequence[int]
Array = np.ndarray[typing.Any, np.dtype[typing.Any]]


class ExportsDLPack(typing.Protocol):
    def __dlpack__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any: ...


class DeviceMesh(typing.Protocol):
    """What a grid is made of: torch's DeviceMesh has it."""
    mesh: typing.Any
    mesh_dim_names: typing.Any


class Communicator(typing.Protocol):
    """A communicator of mpi4py."""
    def py2f(self) -> int: ...


# Contiguous memory of the kind that the context is for.
Buffer = typing.Union[Array, ExportsDLPack]
# The address of a CUDA stream, or an object of torch or cupy that has one.
Stream = typing.Any
Shapes = typing.Tuple[typing.Tuple[int, ...], typing.Tuple[int, ...]]

Direction = typing.Literal["forward", "adjoint"]
Reduction = typing.Literal["sum", "max", "min", "prod", "avg"]
Owner = typing.Literal["partial", "zigzag", "contiguous", "rows"]
Storage = typing.Literal["full", "compact"]
Output = typing.Literal["whole", "sharded"]
RowOrder = typing.Literal["sample", "sequence"]
Routing = typing.Literal["auto", "direct", "balanced"]
SharedOutput = typing.Literal["none", "forward", "adjoint", "both"]
GraphAlgorithm = typing.Literal["auto", "direct", "all_gather"]
CollectiveAlgorithm = typing.Literal["auto", "one_shot", "two_shot"]
MegatronAlgorithm = typing.Literal["collective", "leader"]
Mode = typing.Literal["shed", "lpt", "kk", "contiguous", "caller"]
Place = typing.Literal["home", "dispatched", "computed", "returned"]
Priority = typing.Literal["normal", "high"]
Side = typing.Literal["src", "dst"]
Report = typing.Dict[str, typing.Any]
