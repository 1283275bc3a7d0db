"""A program for jobs that wait until others are in a collective.

A process of its own: what reads a run loads pyarrow, which no rank should need.
"""

IN_FLIGHT = """
import sys, time
from rankscope.schema.leftovers import find_leftovers

run_dir, seq, num = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
while True:
    found = set()
    for leftover in find_leftovers(run_dir):
        for key, part in leftover.tables().items():
            rows = part.to_pylist() if key[0] == "collective" else []
            found |= {row["rank"] for row in rows if row["state"] == "issued" and row["seq"] == seq}
    if len(found) >= num:
        break
    time.sleep(0.05)
"""
"""Ends when so many ranks have the operation with that number of a group in flight.

Arguments: run directory, number of the operation, number of ranks.
"""
