"""Looks whether the lines of every mutant are in the code exactly once, as mutants.sh needs them.

A mutant whose code has changed would otherwise be found only when all are run, hours later.
Last line: N passed, N failed.
"""
import glob
import os


def mutants():
    found = []
    for path in sorted(glob.glob("tests/mutants/*.txt")):
        for line in open(path, encoding="utf-8").read().splitlines():
            if line.startswith("mutant "):
                found.append((line[len("mutant "):].split(":")[0], path, []))
            elif line.startswith("- "):
                found[-1][2].append(line[2:].strip())
    return found


def places_of_lines():
    texts, places = {}, {}
    patterns = ("src/**/*.[ch]", "tests/mpi/**/*.[ch]", "tests/golden/**/*.[ch]", "src/**/*.py",
                "src/**/*.cpp", "examples/python/**/*.py")
    for pattern in patterns:
        for path in glob.glob(pattern, recursive=True):
            texts[path] = [line.strip() for line in open(path, encoding="utf-8")]
            for i, line in enumerate(texts[path]):
                places.setdefault(line, []).append((path, i))
    return texts, places


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
texts, places = places_of_lines()
passed = failed = 0
for name, path, old in mutants():
    hits = sum(texts[file][i:i + len(old)] == old for file, i in places.get(old[0], [])) if old else 0
    passed += hits == 1
    failed += hits != 1
    if hits != 1:
        print(f"FAIL {path}: the lines of mutant {name} are there {hits} times, must be once")
print(f"{passed} passed, {failed} failed")
raise SystemExit(failed > 0)
