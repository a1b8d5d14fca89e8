#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""instructions_test.py PROVIDER_INSTRUCTIONS: the provider's instructions for a message of 8 bytes are no
more than those of docs/reference/results/mpi.md, with some room for another compiler; so are those of a message of
1 KiB that is copied. Looking for buffers
that are used again adds at most 40 instructions to a message that is copied: to one of many from buffers
that are never used again, and to one from a buffer that is not used often enough. Counts, not times."""
import json
import os
import shutil
import subprocess
import sys

if not shutil.which("valgrind"):
    print("valgrind is not installed")
    sys.exit(77)


def counted(which):
    # The device executes what is posted before the call goes on: no read waits for it.
    inline = {**os.environ, "SOFTHCA_ENGINE": "inline"}
    run = subprocess.run([sys.argv[1], which, "--json"], capture_output=True, text=True, env=inline)
    print(run.stdout, run.stderr)
    if run.returncode:
        sys.exit(1)
    return json.loads(run.stdout)


# The three of a message that is read before it has a receive count together.
MOST = {"tinject": 150, "tsend": 185, "trecv": 140, "read": 225}
MOST_EARLY = 680
parts = {name: part["by_object"]["libheddle-fi.so"] for name, part in counted("--parts").items()}
for name, most in MOST.items():
    assert 50 < parts[name] <= most, (name, parts[name])
early = sum(parts[name] for name in ("early_read", "early_trecv", "early_entry"))
assert 300 < early <= MOST_EARLY, early

counts = counted("--copied")["copied"]
of_message = counts["1024"]
# With what the device completed. It was 690 when each message had a completion once half of the buffers were taken.
MOST_COPIED = 470
assert 100 < of_message["off"] <= MOST_COPIED, of_message
for which in ("never_again", "too_seldom"):
    added = of_message[which] - of_message["off"]
    assert added <= counts["most_added"] == 40, (which, added)
