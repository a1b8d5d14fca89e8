#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""mpi_instructions_test.py HEDDLE VENVS: what messages of MPICH over heddle cost (bench/mpi/instruction_table.py) is no
more than docs/reference/results/instructions.md says, with some room. Counts, not times. The same over UCX is there and
is counted."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "mpi"))
import mpis  # noqa: E402

SKIPPED = 77
SENDER, RECEIVER = "sender", "receiver"
ROOM = 1.06  # for another compiler
# Objects of the heap and the stack lie elsewhere in their lines with other lengths of paths and of the environment.
MORE_LINES = 6
# row, side -> instructions, cache lines, and writes into doorbell registers, at most and without the room.
MOST = {
    ("idle", SENDER): (106, 14, None),
    ("pingpong", SENDER): (535, 73, 1),
    ("send", SENDER): (164, 26, 1),
    ("irecv", RECEIVER): (138, 21, 0),
    ("completion", RECEIVER): (235, 37, 0),
    ("early", RECEIVER): (412, 45, 0),
    ("early_receive", RECEIVER): (308, 30, 0),
    ("eager64", SENDER): (289, 36, 1),
    ("eager64", RECEIVER): (370, 57, 0),
    ("eager1024", SENDER): (488, 53, 1),
    ("eager1024", RECEIVER): (443, 59, 0),
    ("eager8192", SENDER): (1112, 116, 1),
    ("eager8192", RECEIVER): (464, 61, 0),
    ("rget", SENDER): (2034, 161, 1),
    ("rget", RECEIVER): (2671, 244, 2),
    ("rput", SENDER): (3058, 300, 3),
    ("rput", RECEIVER): (2640, 243, 1),
    ("put", SENDER): (1084, 102, 1),
    ("get", SENDER): (1232, 115, 1),
    ("fetch", SENDER): (1773, 137, 1),
}
# Also counted over UCX, whose counts vary with its version.
UCX_ROWS = ("send", "eager64")


def counted(heddle, venvs, *words):
    done = subprocess.run([sys.executable, SOURCE / "bench/mpi/instruction_table.py", "--heddle", heddle, "--venvs", venvs,
                           "--messages", "96", *words], stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.returncode
    return [json.loads(line) for line in done.stdout.splitlines()]


def too_much(counts):
    """What of these counts is more than MOST allows."""
    instructions, lines, registers = MOST[counts["row"], counts["side"]]
    most = {"instructions": instructions * ROOM, "lines": lines * ROOM + MORE_LINES}
    if registers is not None:
        most["mmio_writes"] = registers + 0.1
    return [f"{counts['row']}, {counts['side']}: {name} {counts[name]}, at most {value:.1f}"
            for name, value in most.items() if counts[name] > value]


def main(heddle, venvs):
    if shutil.which("valgrind") is None:
        print("valgrind is not installed", file=sys.stderr)
        return SKIPPED
    _, missing = mpis.find(["mpich"], Path(venvs))
    if missing:
        print(missing["mpich"], file=sys.stderr)
        return SKIPPED
    rows = counted(heddle, venvs, "--way", "direct")
    assert {(row["row"], row["side"]) for row in rows} == {*MOST, ("idle", RECEIVER)}, rows
    over = [line for row in rows if (row["row"], row["side"]) in MOST for line in too_much(row)]
    assert not over, "\n".join(over)
    assert all(set(row["by_library"]) <= {"libheddle-fi.so", "libfabric.so.1"} for row in rows), rows
    rows = counted(heddle, venvs, "--way", "rc_mlx5", *(word for row in UCX_ROWS for word in ("--row", row)))
    assert {row["row"] for row in rows} == {"idle", *UCX_ROWS}, rows
    assert all(row["instructions"] > 50 and row["lines"] > 5 for row in rows), rows
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
