#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""instructions_test.py PROVIDER_INSTRUCTIONS: looking for buffers that are used again adds at most 40
instructions to a message that is copied: to one of many from buffers that are never used again, and to
one from a buffer that is not used often enough. Counts, not times."""
import json
import shutil
import subprocess
import sys

if not shutil.which("valgrind"):
    print("valgrind is not installed")
    sys.exit(77)
run = subprocess.run([sys.argv[1], "--copied", "--json"], capture_output=True, text=True)
print(run.stdout, run.stderr)
if run.returncode:
    sys.exit(1)
counts = json.loads(run.stdout)["copied"]
of_message = counts["1024"]
assert of_message["off"] > 0
for which in ("never_again", "too_seldom"):
    assert of_message[which] - of_message["off"] <= counts["most_added"] == 40, which
