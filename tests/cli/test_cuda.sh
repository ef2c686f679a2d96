#!/usr/bin/env bash
# The libraries for GPUs: built for every device that the compiler knows, loaded without a driver,
# their functions called from Python, and the device tests, where there is a device. Says what was
# skipped. $1: the build folder.
set -u
build=$(cd "${1:?usage: test_cuda.sh BUILD}" && pwd)
cd "$(dirname "$0")/../.." || exit 2
. tests/verdict.sh

# What there is not is said, and nothing else: the command works without.
"$build/lierne" info | grep -q '^cuda: '
verdict $? "lierne info has a line for cuda"
"$build/lierne" info --format json | python3 -c 'import json, sys; d = json.load(sys.stdin); d["nccl"]["found"]'
verdict $? "lierne info prints JSON"
"$build/lierne" info file 2>/dev/null
[ $? = 2 ]
verdict $? "lierne info takes no file"
nvcc=$(sh tests/find_cuda.sh nvcc)
[ -z "$(CUDA_HOME=none sh tests/find_cuda.sh nvcc)" ] && [ -z "$(NCCL_HOME=none sh tests/find_cuda.sh nccl "$nvcc")" ]
verdict $? "CUDA_HOME=none and NCCL_HOME=none find nothing"
if [ -z "$nvcc" ]; then
    echo "skipped: no nvcc, so that liblierne_cuda and liblierne_nccl were not built"
    verdicts
    exit
fi

library=$build/liblierne_cuda.so
[ -e "$library" ]
verdict $? "liblierne_cuda is there"
if command -v "${nvcc%/nvcc}/cuobjdump" >/dev/null; then
    for sm in 80 90 100; do
        "$nvcc" --list-gpu-code | grep -qx "sm_$sm" || continue
        "${nvcc%/nvcc}/cuobjdump" --list-elf "$library" | grep -q "sm_$sm\\."
        verdict $? "kernels for sm_$sm"
    done
    "${nvcc%/nvcc}/cuobjdump" --list-ptx "$library" | grep -q ptx
    verdict $? "PTX for later devices"
else
    echo "skipped: no cuobjdump, so that the devices of the kernels were not listed"
fi
! ldd "$library" | grep -E 'libcuda|libcudart|libnccl|libstdc'
verdict $? "liblierne_cuda needs no driver, runtime or NCCL"

cat >"$work/gpu_binding.py" <<'PY'
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1] + "/liblierne_cuda.so")
nccl = ctypes.CDLL(sys.argv[1] + "/liblierne_nccl.so") if sys.argv[2] == "nccl" else None
base = ctypes.CDLL(sys.argv[1] + "/liblierne.so")
base.lierne_last_error.restype = ctypes.c_char_p
INVALID, UNSUPPORTED = -1, -42
context, text, short = ctypes.c_void_p(), ctypes.create_string_buffer(500), ctypes.create_string_buffer(8)
assert base.lierne_context_create_self(ctypes.byref(context), None) == 0
parts = [(cuda, "cuda", "CUDA runtime")] + ([(nccl, "nccl", "NCCL")] if nccl else [])
for library, name, first in parts:
    summary = getattr(library, "lierne_%s_get_summary" % name)
    assert summary(text, 500) == 0 and text.value.startswith(first.encode()), text.value
    print(text.value.decode())
    assert summary(short, 8) == 0 and len(short.value) == 7
    assert summary(None, 8) == INVALID and summary(text, 0) == INVALID
    assert base.lierne_last_error().startswith(b"lierne_%s_get_summary: " % name.encode())
assert cuda.lierne_context_use_cuda(None) == INVALID
assert base.lierne_last_error().startswith(b"lierne_context_use_cuda: ")
status = cuda.lierne_context_use_cuda(context)
print("lierne_context_use_cuda:", status, base.lierne_last_error().decode() if status else "")
assert status == 0 or (status == UNSUPPORTED and b"no CUDA device" in base.lierne_last_error())
if nccl:
    assert nccl.lierne_context_use_nccl(None, None) == INVALID
    assert base.lierne_last_error().startswith(b"lierne_context_use_nccl: ")
    assert nccl.lierne_context_create_nccl(ctypes.byref(ctypes.c_void_p()), None, None) == INVALID
    assert b"lierne_context_create_nccl: comm is NULL" in base.lierne_last_error()
    if status:
        assert nccl.lierne_context_use_nccl(context, None) == INVALID
        assert b"lierne_context_use_cuda first" in base.lierne_last_error()
assert base.lierne_context_destroy(context) == 0
PY
nccl=$([ -e "$build/liblierne_nccl.so" ] && echo nccl)
got=$(python3 "$work/gpu_binding.py" "$build" "${nccl:-none}" 2>&1)
verdict $? "the functions from Python: $got"
[ -n "$nccl" ] || echo "skipped: no nccl.h, so that liblierne_nccl was not built"

if [ -n "$nccl" ]; then
    got=$(timeout 200 "$build/tests/nccl/ranks" 2>&1)
    verdict $? "the transport over a NCCL that is played: $got"
    got=$(timeout 200 "$build/tests/nccl/replays" 2>&1)
    verdict $? "captured calls and their replays: $got"
    got=$(timeout 200 "$build/tests/nccl/windows" 2>&1)
    verdict $? "windows of a NCCL that is played: $got"
    got=$(timeout 200 "$build/tests/nccl/domains" 2>&1)
    verdict $? "communicators of groups, of a NCCL that is played: $got"
    got=$(timeout 200 "$build/tests/nccl/schedule" 2>&1)
    verdict $? "schedules over a NCCL that is played: $got"
    got=$(timeout 200 "$build/tests/nccl/segments" 2>&1)
    verdict $? "samples and segments that change over a NCCL that is played: $got"
    got=$(timeout 200 "$build/tests/nccl/golden" 2>&1)
    verdict $? "golden cases of dense halos over a NCCL that is played: $got"
fi
if [ -n "$nccl" ] && ! [ -e /dev/nvidiactl ]; then
    got=$(bash tests/bench/gpu/run.sh "$build" 2>&1) && [ "$(grep -c 'measured' <<<"$got")" = 4 ] &&
        grep -q "nothing was measured: there is no CUDA device" <<<"$got"
    verdict $? "make bench-gpu says why nothing was measured: $got"
fi
for program in "$build"/tests/gpu/*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    got=$("$program" 2>&1)
    verdict $? "${program##*/}: $got"
    grep skipped <<<"$got" | sed "s/^/${program##*\/}: /"
done
sanitizer=$(command -v compute-sanitizer || echo "${nvcc%/nvcc}/compute-sanitizer")
if [ -e /dev/nvidiactl ] && [ -x "$sanitizer" ]; then
    for tool in memcheck racecheck initcheck synccheck; do # the test gives CUDA wrong pointers
        got=$(timeout 600 "$sanitizer" --tool $tool --report-api-errors no --error-exitcode 9 "$build/tests/gpu/memory" 2>&1)
        verdict $? "kernels under compute-sanitizer, $tool: $(tail -n 20 <<<"$got")"
    done
else
    echo "skipped: kernels under compute-sanitizer: no device, or no compute-sanitizer"
fi
got=$(bash tests/gpu/launched/run.sh "$build" 2>&1)
verdict $? "programs of tests/launched on a device: $got"
grep skipped <<<"$got" | sed "s/^/tests\/gpu\/launched: /"
verdicts
