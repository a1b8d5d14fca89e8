#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Stands for the command `heddle` where experiments are run but not measured: prints the lines that its
experiments print, of made-up values. Appends each call to $FAKE_LOG. $FAKE_FAIL: the experiment of that
name fails; $FAKE_SLOW: it never ends."""

import json
import os
import sys
import time

HOST = {"name": "loom", "libibverbs": "libibverbs.so.1.14", "libmlx5": "libmlx5.so.1.24"}
CATEGORIES = ("mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads")


def message_rate(_):
    for curve, factor in (("All", 2.0), ("w/o Inlining", 1.0)):
        for path in ("verbs", "direct"):
            for x in (1, 2, 4):
                rate = factor * x
                yield {"series": curve, "x": x, "x_is": "threads", "path": path, "threads": x,
                       "cores": 16, "oversubscribed": False, "mmsgs_per_s": rate,
                       "quartiles": [0.9 * rate, 1.1 * rate], "mmsgs_per_cpu_s": 1.0,
                       "cpu_quartiles": [1.0, 1.0], "paper_mmsgs_per_s": 10 * rate, "host": HOST,
                       "predicted_mmsgs_per_s": 11 * rate}


def kernel(_):
    for category in CATEGORIES:
        yield {"category": category, "path": "verbs", "posting": "conservative", "read_mmsgs_per_s": 1.5,
               "uar_kernel": "static", "uars": 8, "paper_uars": 8, "qps": 4, "cqs": 4, "driver_bytes": 4096,
               "write_mmsgs_per_s": 2.5, "processes": 8, "threads": 4, "cores": 16,
               "oversubscribed": False, "messages": 1000,
               "mmsgs_per_s": 1.0, "predicted_mmsgs_per_s": 90.0, "samples": [1e-3, 2e-3], "result": "correct", **HOST}


def reuse(_):
    for channel in ("send", "ring"):
        for size in (1024, 8192):
            yield {"channel": channel, "bytes": size, "buffers": 1, "separate_pages": False, "learning": "before",
                   "seconds_without": [2e-6, 2e-6], "seconds_with": [1.8e-6, 1.9e-6], "gain": 0.07,
                   "expected_gain": 0.05, "without_copy": 1, **HOST}


def spectrum(kind):
    def rows(_):
        for learning in ("inside", "before"):
            for row in reuse(None):
                if row["channel"] == "send":
                    yield {**row, "experiment": f"reuse-spectrum{kind}", "channel": "rma" if kind else "send",
                           "buffers": 200, "learning": learning}
    return rows


def overlap(_):
    for side in ("receiver", "sender"):
        for way in ("tupleq", "rget", "rput"):
            for size in (0, 65536, 1 << 20):
                yield {"side": side, "bytes": size, "way": way, "base_us": [10, 10],
                       "overhead_us": ([0.5, 0.6] if way == "tupleq" or size < 8192 else [9, 9.5]), **HOST}


def sweep(field):
    def rows(_):
        for x in (0, 10, 100):
            for way, seconds in (("auto", 1.02e-6), ("tupleq", 1.01e-6)):
                yield {"way": way, "bytes": 1024, field: x, "seconds": [seconds] * 3,
                       "seconds_rget": [1e-6] * 3, **HOST}
    return rows


def plan(words):
    threads = int(words[words.index("--threads") + 1])
    yield {"threads": threads, "uar_kernel": "static", "categories": [
        {"category": category, "uars": 8 * threads, "uars_by_icpads18": 8 * threads, "bytes": 1000 * threads,
         "bytes_by_table_1_of_icpads18": 1000 * threads} for category in CATEGORIES]}


def predict(words):
    """What is off by 5 %, beside null models that are off by half, or points."""
    if "--figures" in words:
        for x in (1, 2):
            yield {"figure": "3", "curve": "All", "x": str(x), "paper_mmsgs_per_s": 16.0 * x,
                   "predicted_mmsgs_per_s": 17.0 * x, "role": "hard"}
        return
    for points in ("unseen", "hard"):
        for figure in ("3", "all"):
            off = {"mean": 0.05, "median": 0.05, "percentile_95": 0.05}
            yield {"figure": figure, "points": points, "count": 2, "rank": 1.0, "model": off,
                   **{f"null_{name}": {key: 10 * value for key, value in off.items()}
                      for name in ("constant", "free_sharing", "nearest")}}


def calibrate(_):
    way = {"copied_ns": 100.0, "gathered_ns": 50.0, "uses": 60.0}
    yield {"sizes": [{"bytes": size, "ways": {"send": way, "ring": {**way, "uses": None},
                                              "one-sided": way}} for size in (512, 8192)]}


EXPERIMENTS = {
    "message-rate": message_rate, "global-array": kernel, "stencil": kernel, "overlap": overlap,
    "tuple-late": sweep("late"), "tuple-many": sweep("tags"), "tuple-wildcards": sweep("wildcards"),
    **{f"reuse-spectrum{kind}": spectrum(kind) for kind in ("", "-put", "-get")},
    **{f"reuse-{name}": reuse for name in ("pingpong", "rotation", "put", "get", "bcast", "scatter")},
}


def main(words):
    if words == ["--version"]:
        print("heddle 9.9.9")
    elif words == ["info", "--json"]:
        print(json.dumps({"devices": [{"device": "mlx5_7", "software": True}]}))
    elif words[0] == "calibrate":
        print(json.dumps(next(calibrate(words)), indent=2))
    elif words[0] == "predict":
        for row in predict(words):
            print(json.dumps(row))
    elif words[0] == "plan":
        print(json.dumps(next(plan(words))))
    elif words[0] == "bench":
        with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
            print(" ".join(words), file=log)
        rows = list(EXPERIMENTS[words[1]](words))
        print(json.dumps(rows[0]), flush=True)
        if words[1] == os.environ.get("FAKE_FAIL"):
            print("heddle: no more queue pairs <&>", file=sys.stderr)
            return 3
        if words[1] == os.environ.get("FAKE_SLOW"):
            time.sleep(600)
        for row in rows[1:]:
            print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
