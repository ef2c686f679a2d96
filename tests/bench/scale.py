"""Prints what reports and simulations of whole worlds take: processor seconds and MB of memory.

usage: scale.py LIERNE. Columns: `lierne plan` of all ranks, `lierne plan --rank`, `lierne simulate` (up to
16,384 ranks). Exit status 1 where one fails, or takes more memory than it should: 1 GB, and 16 MB for the
plan of one rank. Times are printed only: they are those of the machine."""
import os
import sys

WORLDS = [64, 1024, 4096, 16384, 131072]
SIMULATED = 16384


def run(command):
    """Its processor seconds and peak of memory in MB; None if it fails."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execv(command[0], command)
    _, status, usage = os.wait4(pid, 0)
    return (usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3) if status == 0 else None


def main():
    tool, good = sys.argv[1], True
    print(f"{'ranks':>7}  {'bridge':24} {'all ranks, s':>12} {'MB':>6} {'one rank, s':>12} {'MB':>6} {'simulate, s':>12} {'MB':>6}")
    for world in WORLDS:
        batch = f"b{world // 2},s1024,h1024"
        for src, dst in ((f"tp2,dp{world // 2}", f"tp8,cp4,dp{world // 32}"), (f"tp8,dp{world // 8}", f"tp2,cp4,dp{world // 8}")):
            bridge = ["--src", src, "--dst", dst, "--tensor", batch]
            results = [(run([tool, "plan", *bridge]), 1000), (run([tool, "plan", *bridge, "--rank", "5"]), 16)]
            if world <= SIMULATED:
                results.append((run([tool, "simulate", *bridge]), 1000))
            columns = " ".join(f"{r[0]:12.2f} {r[1]:6.0f}" if r else f"{'failed':>19}" for r, _ in results)
            print(f"{world:7}  {src.split(',')[0] + ' dp -> ' + dst.rsplit(',', 1)[0].replace(',', ' ') + ' dp':24} {columns}", flush=True)
            good &= all(r and r[1] <= most for r, most in results)
    print(f"{int(good)} passed, {int(not good)} failed")
    sys.exit(0 if good else 1)


main()
