"""Finds which tests run which lines of src, for draw.py: cover.py BUILD SECONDS

Builds the programs with gcc's coverage in BUILD/cover, runs every test there once, one after the other, and writes a
file per test, BUILD/cover/map/NAME: its time without coverage, and the lines it ran. Takes half an hour on two cores; after SECONDS it
stops, and the next call goes on there. Tests are suites of the unit tests, golden files, programs on one node and under
mpirun, and scripts that test the command. One that fails is left out, and named.
Remove BUILD/cover/map to measure again. Last line: N tests measured, N to do.
"""
import bisect
import collections
import glob
import json
import os
import re
import subprocess
import sys
import time

FLAGS = "CFLAGS=-O1 --coverage -fprofile-update=prefer-atomic -include tests/mutants/dump.h"
SCRIPTS = "bad check draw hang import launch place plan printed route samples schedule set terminal watch".split()
NODE = ("node/jobs node/shrink node/rounds node/refusals node/launchers ipc/ranks ipc/groups ipc/rounds nccl/ranks "
        "nccl/schedule nccl/windows nccl/domains nccl/segments node/neighbours").split()
EMULATED = "tests/gpu/threads tests/emulator/runs tests/emulator/ranks".split()
MPI = {"known_answer": 4, "transport": 2, "arguments": 2, "failure": 2, "sparse_exchange": 3, "sparse": 3, "general": 4,
       "late_rank": 2, "timeout": 3, "groups": 3, "members": 4, "samples": 4, "collective": 4, "update": 3,
       "shared_output": 4, "schedule": 4, "delta": 3, "segments": 3, "rejections": 2, "inflight": 2, "memory": 2,
       "steps": 3, "rounds": 3, "shm": 3}
OVER_MPI = "known_answer sparse collective late_rank timeout".split()  # on one node the others use shared memory
LONGEST = 600  # seconds of a test; one that takes more is left out
Test = collections.namedtuple("Test", "name programs command seconds")


def suites(build):
    listed = subprocess.run([f"{build}/unit", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"^(\w+): \d+ tests?$", listed, re.M)


def tests(build):
    """All tests, without times. {build} in a command is the folder that the programs are in."""
    found = [Test(f"unit {suite}", ["unit"], f"{{build}}/unit --fail-fast --timeout 300 -j1 --filter '{suite}/*'", 0)
             for suite in suites(build)]
    for path in sorted(glob.glob("tests/golden/*.json")):
        name = os.path.basename(path)
        found.append(Test(f"golden {name}", ["golden"], f"d=$(mktemp -d) && ln -s $PWD/{path} $d && {{build}}/golden $d; "
                                                        "status=$?; rm -r $d; exit $status", 0))
    found += [Test(name, [f"tests/{name}"], f"{{build}}/tests/{name}", 0) for name in NODE]
    found += [Test(f"emulated {name}", [f"emulated/{name}"], f"{{build}}/emulated/{name}", 0) for name in EMULATED]
    found += [Test(f"mpi {name} {n}{over}", [f"tests/mpi/{name}"],
                   f"{set_over} timeout 300 mpirun --oversubscribe -n {n} {{build}}/tests/mpi/{name}", 0)
              for name, n in MPI.items() for over, set_over in (("", ""), (" over mpi", "LIERNE_TRANSPORTS=mpi"))
              if not over or name in OVER_MPI]
    found += [Test(f"cli {name}", ["lierne", "lierne-run"], f"bash tests/cli/test_{name}.sh {{build}}", 0)
              for name in SCRIPTS]
    return found


def ran(folder):
    """{source: [lines that ran, among those with code]} of what is in the folder, and the lines with code."""
    counts = glob.glob(f"{folder}/src/**/*.gcda", recursive=True)
    lines, code = collections.defaultdict(set), collections.defaultdict(set)
    told = subprocess.run(["gcov", "--json-format", "--stdout", *counts], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for text in told.stdout.splitlines():
        for file in json.loads(text)["files"] if text.startswith(b"{") else ():
            if file["file"].startswith("src/"):
                code[file["file"]].update(line["line_number"] for line in file["lines"])
                lines[file["file"]].update(line["line_number"] for line in file["lines"] if line["count"])
    return lines, code


def place(build, test):
    return f"{build}/cover/map/{re.sub('[ /]', '_', test.name)}"


def run(test, build):
    return subprocess.run(["timeout", "-k", "5", str(LONGEST), "sh", "-c", test.command.format(build=build)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode


def measure(build, test):
    folder = f"{build}/cover"
    for path in glob.glob(f"{folder}/**/*.gcda", recursive=True):
        os.unlink(path)
    status = run(test, folder)
    lines, code = ran(folder)
    start = time.monotonic()
    status = status or run(test, build)
    seconds = time.monotonic() - start
    if status:
        print(f"{test.name} fails, or takes more than {LONGEST} s: left out")
        lines, code = {}, {}
    data = {"name": test.name, "seconds": seconds, "lines": {path: sorted(own) for path, own in lines.items() if own},
            "code": {path: sorted(own) for path, own in code.items()}}
    with open(f"{folder}/new", "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.rename(f"{folder}/new", place(build, test))


class Covered:
    """The tests of a line, the quick ones first."""

    def __init__(self, build):
        by_name = {test.name: test for test in tests(build)}
        self.at, self.code = collections.defaultdict(lambda: collections.defaultdict(list)), collections.defaultdict(set)
        self.ran = collections.Counter()
        measured = [json.load(open(path, encoding="utf-8")) for path in glob.glob(f"{build}/cover/map/*")]
        for data in sorted(measured, key=lambda data: data["seconds"]):
            if data["name"] in by_name:
                test = by_name[data["name"]]._replace(seconds=data["seconds"])
                for path, lines in data["lines"].items():
                    self.ran[path, test.name] = len(lines)
                    for line in lines:
                        self.at[path][line].append(test)
                for path, lines in data["code"].items():
                    self.code[path].update(lines)
        self.code = {path: sorted(lines) for path, lines in self.code.items()}

    def share(self, path, test):
        """The share of a file's lines that a test of this name runs."""
        return self.ran[path, test] / max(1, len(self.code[path]))

    def tests(self, path, line):
        """A line within a statement has those of the line where it begins."""
        lines = self.code.get(path, [])
        at = bisect.bisect_right(lines, line) - 1
        return self.at[path].get(lines[at], []) if at >= 0 and line - lines[at] <= 4 else []


def commands(build):
    """{object or program: the command that makes it}."""
    told = subprocess.run(["make", "-n", "-B", "V=1", "DEPS=0", f"B={build}", "tests"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    found = {}
    for line in told.splitlines():
        if out := re.search(r" -o (\S+) ", line):
            found[out[1]] = line
    return found


def main(build, seconds):
    end, folder = time.monotonic() + float(seconds), f"{build}/cover"
    programs = sorted({program for test in tests(build) for program in test.programs})
    subprocess.run(["make", "-s", "-j2", "DEPS=0", f"B={folder}", FLAGS, *(f"{folder}/{p}" for p in programs)], check=True)
    os.makedirs(f"{folder}/map", exist_ok=True)
    unmeasured = [test for test in tests(build) if not os.path.exists(place(build, test))]
    done = 0
    while done < len(unmeasured) and time.monotonic() < end:
        measure(build, unmeasured[done])
        done += 1
    print(f"{len(tests(build)) - len(unmeasured) + done} tests measured, {len(unmeasured) - done} are left")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
