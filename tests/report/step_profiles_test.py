# SPDX-License-Identifier: BSD-2-Clause
"""How bench/mpi/step_profiles.py gets the counts of a message from callgrind's files: which libraries count, that polls
which find nothing are subtracted, and that the polls of one call touch the same lines."""

import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench/mpi"))
import callgrind  # noqa: E402
import step_profiles  # noqa: E402

MESSAGES = 4
POLL = 50  # instructions
FILE = """\
version: 1
desc: Trigger: Client Request: {name}
positions: instr line
events: Ir Dr Dw D1mr D1mw
ob=(1) /opt/lib/libmpi.so.12
fn=(1) PMPI_Test
0x100 0 900 90 90 9 9
cob=(2) /opt/lib/libheddle-fi.so
cfn=(2) long read_cq<fi_cq_tagged_entry>(fid_cq*, void*)
calls=77 0x200
0x104 0 5000 1 1 1 1
ob=(2)
fn=(2)
0x200 0 {polls} 0 0 {lines} 0
0x204 0 {others} 5 3 0 0
ob=(3) /usr/lib/libc.so.6
fn=(3) memcpy
0x300 0 12345 1 1 1 1
"""


def text(name, polls, instructions, lines):
    return FILE.format(name=name, polls=polls, others=instructions - polls, lines=lines)


def written(folder, number, *of_file):
    (folder / f"profile.0.{number}").write_text(text(*of_file))


class Profiles(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        written(self.folder, 1, "idle steps", MESSAGES, MESSAGES * POLL, MESSAGES * 6)

    def row(self, name):
        return step_profiles.row_of(step_profiles.read(self.folder, 0), name, MESSAGES)

    def chunk(self, number, polls, instructions, lines):
        written(self.folder, 2 * number, "send steps", polls, instructions, lines)
        rest = step_profiles.REST
        written(self.folder, 2 * number + 1, "send rest", rest, rest * POLL + MESSAGES * 7, rest * 6 + MESSAGES)

    def test_a_file_has_its_name_and_its_calls(self):
        lines = text("send rest", 1, 2, 3).splitlines(keepends=True)
        self.assertEqual(callgrind.trigger_of(lines), "send rest")
        calls = [record for record in callgrind.records(lines) if isinstance(record, callgrind.Calls)]
        self.assertEqual([(call.library, call.called_library, call.position, call.times) for call in calls],
                         [("libmpi.so.12", "libheddle-fi.so", "0x200", 77)])

    def test_only_libraries_beneath_mpi_count(self):
        self.assertEqual(self.row("idle"), {"instructions": POLL, "references": 2, "lines": 6,
                                            "by_library": {"libheddle-fi.so": POLL}})

    def test_calls_that_do_not_count_give_none(self):
        (self.folder / "profile.0.2").write_text("desc: Trigger: Client Request: send steps\nevents: Ir\n")
        self.assertIsNone(self.row("send"))

    def test_polls_beyond_the_fewest_are_subtracted(self):
        for number, late in enumerate((0, 3, 9), start=1):
            self.chunk(number, MESSAGES + late, MESSAGES * 200 + late * POLL, MESSAGES * 20)
        found = self.row("send")
        self.assertEqual(found["instructions"], 200 + 7, "what is done later is of the message, too")
        self.assertEqual(found["lines"], 20 + 1)

    def test_a_call_that_waits_has_one_poll_of_its_own(self):
        for number, polls in enumerate((100, 200, 400), start=1):
            self.chunk(number, polls, MESSAGES * 200 + polls * 30, MESSAGES * 20)
        self.assertEqual(self.row("send")["instructions"], 200 + 30 + 7)


if __name__ == "__main__":
    unittest.main()
