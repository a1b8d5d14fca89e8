# SPDX-License-Identifier: BSD-2-Clause
"""What a message of MPI costs the processor: how bench/mpi/counts.py reads callgrind's files, and that its verdict
knows fewer from the same, and says what was not counted."""

import copy
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / each) for each in ("report", "bench/mpi"))]
import counts  # noqa: E402
import fake_mpi  # noqa: E402
from heddle_report import catalogue  # noqa: E402

EXPERIMENT = next(each for each in catalogue.all_experiments() if each.key == "direct-mpi-counts")
FILE = """\
# callgrind format
version: 1
positions: line
events: Ir Dr Dw Bc Bcm Bi Bim
ob=(1) /opt/lib/libmpi.so.12
fl=(1) ???
fn=(1) PMPI_Send
0 100 30 20 9 2 3 1
cob=(2) /usr/lib/libmlx5.so.1.24
cfn=(2) post
calls=1 0
0 5000 600 700 80 90 10 11
+3 7 1
ob=(2)
fn=(2)
* 40 10 5
fn=(3) memcpy'2
-2 3
ob=(3) /opt/lib/libsofthca.so
fn=(4) execute
0 9999 999 999 99 99 99 99
ob=(4) /usr/lib/libc.so.6
fn=(5) syscall
0 8888 888
fn=(6) memcpy
0 6 2 2

totals: 1 2 3
"""


class Files(unittest.TestCase):
    def test_own_costs_by_library(self):
        found = counts.read_counts(FILE.splitlines(keepends=True))
        self.assertEqual(found["libmpi.so.12"], {"instructions": 107, "data_reads": 31, "data_writes": 20,
                                                 "mispredicted": 3})
        self.assertEqual(found["libmlx5.so.1.24"]["instructions"], 43, "a callee's cost is its own")
        self.assertEqual(found["libc.so.6"]["instructions"], 6, "the wake of a device's thread is none of ours")
        self.assertEqual(set(found), {"libmpi.so.12", "libmlx5.so.1.24", "libc.so.6"}, "no software HCA")

    def test_nothing_in_a_file_is_nothing(self):
        self.assertEqual(counts.read_counts([]), {})
        self.assertEqual(counts.read_counts(["events: Ir Dr\n", "fn=(1) f\n"]), {})

    def test_columns_go_by_their_names(self):
        other = FILE.replace("events: Ir Dr", "events: Dr Ir")
        found = counts.read_counts(other.splitlines(keepends=True))
        self.assertEqual(found["libmpi.so.12"]["data_reads"], 107)


def rows(**instructions):
    """way -> instructions of a message; data reads are a quarter of them."""
    found = []
    for row in fake_mpi.counts([]):
        if row["way"] in instructions:
            value = instructions[row["way"]]
            row["callgrind"].update(instructions=value, data_reads=value / 4)
        found.append(row)
    return found


def state(**instructions):
    return EXPERIMENT.verdict(rows(**instructions)).state


class Verdicts(unittest.TestCase):
    def test_fewer_in_both_pairs(self):
        said = EXPERIMENT.verdict(rows())
        self.assertEqual(said.state, "like", said.text)
        self.assertIn("UCX's rc_mlx5 beside rc_verbs: 900 instructions of 1800", said.text)
        self.assertIn("heddle's direct beside verbs: 1000 instructions of 2000", said.text)

    def test_null_models_are_unlike(self):
        for constant in (1, 1000, 2900):
            self.assertEqual(state(verbs=constant, direct=constant, rc_verbs=constant, rc_mlx5=constant), "unlike")
        self.assertEqual(state(verbs=1000, direct=2000, rc_verbs=900, rc_mlx5=1800), "unlike", "the other way round")
        self.assertEqual(state(verbs=1000, direct=960, rc_verbs=1000, rc_mlx5=960), "unlike", "4 % fewer")

    def test_one_pair_alone_is_partly(self):
        self.assertEqual(state(direct=2000), "partly")
        self.assertEqual(state(rc_mlx5=1800), "partly")
        fewer = rows()
        for row in fewer:
            row["callgrind"]["data_reads"] = 300
        self.assertEqual(EXPERIMENT.verdict(fewer).state, "partly", "instructions alone")

    def test_what_is_not_counted_is_said(self):
        said = EXPERIMENT.verdict(rows()).text
        self.assertIn("Not counted by the processor: stalled cycles (back end) (this machine does not count it <&>).", said)
        without = copy.deepcopy(rows())
        without[3]["callgrind"] = {"why_not": "valgrind is not installed"}
        said = EXPERIMENT.verdict(without)
        self.assertEqual(said.state, "cannot")
        self.assertIn("UCX, rc_mlx5", said.text)
        self.assertIn("valgrind is not installed", said.text)
        EXPERIMENT.panels(without)
        EXPERIMENT.points(without)
        for row in without:
            row["callgrind"] = {"why_not": "valgrind is not installed"}
        self.assertEqual(EXPERIMENT.verdict(without).state, "cannot")
        self.assertEqual([panel.title for panel in EXPERIMENT.panels(without)], ["Processor time, ns"])

    def test_stalled_cycles_are_shown_where_they_are_counted(self):
        counted = rows()
        for row in counted:
            row["processor"]["stalled_backend"] = [70.0, 80.0, 90.0]
        values = {point.key: point.value for point in EXPERIMENT.points(counted)}
        self.assertEqual(values["stalled cycles (back end)", "UCX, rc_mlx5"], 80)
        self.assertNotIn("Not counted", EXPERIMENT.verdict(counted).text)

    def test_the_parts_are_the_whole(self):
        values = {point.key: point.value for point in EXPERIMENT.points(rows())}
        self.assertEqual(values["instructions: MPI", "heddle, verbs"], 500)
        self.assertEqual(values["instructions: libibverbs and its driver", "heddle, verbs"], 1500)
        parts = sum(value for key, value in values.items() if key[0].startswith("instructions: ")
                    and key[1] == "UCX, rc_verbs")
        self.assertEqual(parts, values["instructions", "UCX, rc_verbs"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
