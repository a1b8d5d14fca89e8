#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stands for operations.py, heap.py and ways.py of bench/mpi, under their names: lines of made-up values."""

import json
import sys
from pathlib import Path


def operations(words):
    ways = [after for word, after in zip(words, words[1:]) if word == "--way"]
    for operation in ("latency", "bandwidth", "allreduce"):
        for size in (8, 8192, 1 << 20):
            for way in ways or ("verbs", "direct"):
                faster = 1 if way in ("verbs", "ucx") else 0.5
                yield {"mpi": "MPICH", "operation": operation, "bytes": size, "ranks": 2, "way": way,
                       "seconds": [1e-6 * faster, 2e-6 * faster]}


def heap(_):
    for ranks in (2, 4):
        for way in ("verbs", "direct"):
            yield {"way": way, "ranks": ranks, "heap_bytes": [20000 * ranks]}


def ways(_):
    for way, seconds in (("rget", 2.0), ("rput", 2.1), ("tupleq", 1.5), ("tupleq, copy", 1.6),
                         ("auto", 1.9)):
        yield {"program": "adi", "way": way, "seconds": [seconds, seconds * 1.1]}


if __name__ == "__main__":
    for row in {"operations": operations, "heap": heap, "ways": ways}[Path(__file__).stem](sys.argv):
        print(json.dumps(row))
