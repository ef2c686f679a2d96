"""Runs the unittest cases of a module and ends with the line that tests/check.sh counts."""
import json
import os
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def golden(name):
    with open(os.path.join(ROOT, "tests", "golden", name + ".json")) as file:
        return json.load(file)


def main():
    program = unittest.main(module="__main__", exit=False, argv=sys.argv, verbosity=1)
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    sys.exit(failed != 0)
