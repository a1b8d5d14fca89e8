#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stands for post_instructions, post_counters and reuse_lookup, under their names: a line of made-up
values."""

import json
import sys
from pathlib import Path


def part(count):
    return {"instructions": count, "by_object": {"heddle": 100.0, "libmlx5.so.1": count - 100}}


MADE_UP = {
    "post_instructions": {"verbs-locked": part(400.0), "verbs-thread-domain": part(300.0),
                          "direct": part(120.0)},
    "post_counters": {"experiment": "post-counters", "counters": {
        "cycles": {"why_not": "this machine does not count it <&>"},
        "task_clock_ns": {"verbs": [200.0, 210.0], "direct": [100.0, 110.0]}}},
    "reuse_lookup": {"lookup_ns": [{"buffers": 1, "ours": 2.0, "chained_hash": 1.5, "tree": 2.5},
                                   {"buffers": 1000, "ours": 3.0, "chained_hash": 2.5, "tree": 9.5}],
                     "instructions": {"new": 31.0, "again": 20.0}},
}

if __name__ == "__main__":
    print(json.dumps(MADE_UP[Path(sys.argv[0]).name]))
