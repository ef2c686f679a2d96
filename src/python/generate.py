"""Writes the declarations of lierne's C headers as the Python module that cffi loads.

The headers are the only source: functions, structs, enums and constants come from the preprocessor,
defaults from the macros LIERNE_..._SPEC_INIT. The module is read at run time without a compiler
(cffi's ABI mode, out of line), so that one wheel serves every version of Python.
Usage: generate.py INCLUDE_FOLDER OUTPUT_FILE
"""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile

import cffi

HEADERS = ("lierne.h", "lierne/sim.h", "lierne/node.h", "lierne/oob.h", "lierne/mpi.h", "lierne/cuda.h", "lierne/nccl.h")
# What the headers need of the system's: cffi knows the types, and MPI is not needed to declare them.
SYSTEM = {"stddef.h": "", "stdint.h": "", "stdbool.h": "#define bool _Bool\n",
          "mpi.h": "typedef void *MPI_Comm;\n"}


def preprocess(include, *options):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SYSTEM.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        source = "".join(f"#include <{name}>\n" for name in HEADERS)
        command = [os.environ.get("CC", "cc"), "-E", "-P", "-nostdinc", "-U__GNUC__", "-I", folder,
                   "-I", include, *options, "-"]
        return subprocess.run(command, input=source, capture_output=True, text=True,
                              check=True).stdout


def constants_of(macros):
    """Macros that are integers, as cffi's `#define NAME value`."""
    text = []
    for name, value in re.findall(r"#define (LIERNE_[A-Z0-9_]+) +(.+)", macros):
        if re.fullmatch(r"\(?\d+( << \d+)?\)?", value.strip()):
            text.append(f"#define {name} {eval(value)}")
    return "\n".join(text)


def defaults_of(macros):
    """Fields that LIERNE_..._SPEC_INIT sets to a number other than zero, by struct."""
    defaults = {}
    numbers = dict(re.findall(r"#define (LIERNE_\w+) +(\d+)$", macros, re.MULTILINE))
    for body in re.findall(r"#define LIERNE_\w+_INIT +\{(.*)\}", macros):
        name = re.search(r"sizeof\((\w+)\)", body)[1]
        fields = re.findall(r"\.(\w+) = (-?\d+|LIERNE_\w+) *(?:,|$)", body.strip())
        values = {field: numbers.get(value, value) for field, value in fields}
        defaults[name] = {field: int(value) for field, value in values.items() if value.lstrip("-").isdigit()}
    return defaults


def main(include, output):
    macros = preprocess(include, "-dM")
    ffi = cffi.FFI()
    ffi.cdef(constants_of(macros) + "\n" + preprocess(include))
    ffi.set_source("lierne._binding", None)
    with contextlib.redirect_stdout(io.StringIO()):  # it says what it writes
        ffi.emit_python_code(output)
    version = re.search(r'#define LIERNE_VERSION_STRING "(.*)"', macros)[1]
    with open(output, "a") as file:
        file.write(f"\nVERSION = {version!r}\nDEFAULTS = {defaults_of(macros)!r}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
