"""Counts the verdicts of the mutants that draw.py made: how many of them tests catch.

Its input is drawn.csv: a row each, but for those that tests of their line caught at once, a number in the last row.
"""
import collections
import csv
import os

AT_ONCE = "caught at once"
os.chdir(os.path.dirname(os.path.abspath(__file__)))
with open("drawn.csv", encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
counts = collections.Counter(row["verdict"].split(":")[0].split(" by ")[0] for row in rows)
counts[AT_ONCE] = sum(int(row["verdict"].split(": ")[1]) for row in rows if row["verdict"].startswith(AT_ONCE))
drawn = sum(counts.values())
caught = counts[AT_ONCE] + counts["caught"] + counts["test added"]
different = drawn - counts["equivalent"] - counts["code removed"]
for verdict, n in counts.most_common():
    print(f"{n:5} {verdict}")
share = f"{caught / different:.1%} of the {different} that are not equivalent"
print(f"{drawn:5} drawn of seed {rows[0]['seed']}; tests catch {share}")
