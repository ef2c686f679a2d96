"""The tensors of a distributed checkpoint of torch, as Megatron-LM and torch write them, for a set file:

    python -m lierne.torch.checkpoint FOLDER > tensors.json

`lierne plan --set` and `lierne simulate --set` take the list by its path, "tensors": "tensors.json". The metadata
names every tensor of the whole model; weights are not read."""
from __future__ import annotations

import json
import sys
import typing

import torch.distributed.checkpoint as dcp

from lierne._arrays import dtype_name


def list_tensors(folder: str) -> typing.List[typing.Dict[str, typing.Any]]:
    """Name, dtype and shape of every tensor of the checkpoint in folder, by name. Not collective. Raises what
    torch.distributed.checkpoint.FileSystemReader raises for a folder without metadata, and TypeError for a dtype
    that no set moves."""
    entries = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    return [{"name": name, "dtype": dtype_name(entry.properties.dtype), "shape": list(entry.size)}
            for name, entry in sorted(entries.items()) if isinstance(entry, dcp.metadata.TensorStorageMetadata)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: python -m lierne.torch.checkpoint FOLDER")
    json.dump(list_tensors(sys.argv[1]), sys.stdout, indent=1)
    print()
