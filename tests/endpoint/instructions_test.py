#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""instructions_test.py POST_INSTRUCTIONS: the direct path takes at most half the instructions of verbs
in a thread domain, and a thread domain no more than a locked QP. Counts, not times."""
import json
import shutil
import subprocess
import sys

if not shutil.which("valgrind"):
    print("valgrind is not installed")
    sys.exit(77)
run = subprocess.run([sys.argv[1], "--json"], capture_output=True, text=True)
print(run.stdout, run.stderr)
if run.returncode:
    sys.exit(1)
counts = {name: part["instructions"] for name, part in json.loads(run.stdout).items()}
assert 0 < 2 * counts["direct"] <= counts["verbs-thread-domain"] <= counts["verbs-locked"], counts
