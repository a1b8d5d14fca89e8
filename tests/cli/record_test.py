# SPDX-License-Identifier: BSD-2-Clause
"""`softhca run --record`: the record of a program whose posts are known, against the device's own
counters; several processes and threads; and what happens when it cannot be written."""

import glob
import json
import os
import subprocess
import unittest

from harness import BUILD_DIR, SOFTHCA, TEST_DIR, Case, main

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
PROGRAM = os.path.join(TEST_DIR, "cli_recorded")
ROUNDS, EXTENDED_POSTS = 50, 10  # recorded.cc


def read(path):
    """The objects of a record: header, QPs and CQs by number, events by thread, totals."""
    with open(path, encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    record = {"header": lines[0], "qps": {}, "cqs": {}, "threads": {}, "qp_totals": {},
              "cq_totals": {}, "begins": set(), "ends": set(), "truncated": set(), "lines": len(lines)}
    for line in lines[1:]:
        if "thread" in line:
            events = record["threads"].setdefault(line["thread"], [])
            marks = [mark for mark in ("begins", "ends", "truncated") if line.get(mark)]
            for mark in marks:
                record[mark].add(line["thread"])
            if marks:
                continue
            cycle = line.get("cycle") or [line]
            for _ in range(line["times"] if "cycle" in line else 1):
                for run in cycle:
                    event = {k: v for k, v in run.items() if k not in ("thread", "times")}
                    events.extend([event] * run["times"])
        elif "totals" in line:
            of = line["totals"]
            record["qp_totals" if "qp" in of else "cq_totals"][of.get("qp", of.get("cq"))] = of
        else:
            record["qps" if "qp" in line else "cqs"][line.get("qp", line.get("cq"))] = line
    return record


def posts(record, qpn):
    return [event for events in record["threads"].values() for event in events
            if event.get("post") == qpn]


def sums(record, qpn):
    """As the totals of that QP, from its events."""
    found = posts(record, qpn)
    return {"wqes": sum(post["wqes"] for post in found),
            "doorbells": sum(not post["blueflame"] for post in found),
            "blueflame": sum(post["blueflame"] for post in found)}


class Record(Case):
    def start(self, what, *options, **more):
        return subprocess.Popen(
            [SOFTHCA, "run", "--record", self.path("record"), *options, "--", PROGRAM, what],
            env=dict(self.environment, **more), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def record_of(self, pid):
        return read(self.path(f"record.{pid}"))

    def run_program(self, what, *options, **more):
        """Its record, what it said on standard error, and its queues' numbers."""
        process = self.start(what, *options, **more)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        numbers = [int(word) for word in out.splitlines()[0].split()[1:]]
        return self.record_of(process.pid), err, numbers

    def assert_sums(self, record):
        self.assertTrue(record["qp_totals"])
        for qpn, totals in record["qp_totals"].items():
            self.assertEqual(sums(record, qpn), {key: totals[key] for key in sums(record, qpn)})
        for cqn, totals in record["cq_totals"].items():
            polled = sum(event["cqes"] for events in record["threads"].values() for event in events
                         if event.get("poll") == cqn)
            self.assertEqual(polled, totals["cqes"])

    def test_threads_objects_and_counters(self):
        process = self.start("destroy")
        words = process.stdout.readline().split()
        self.assertEqual(words[:1], ["ready"], process.stderr)
        first, second, cq_first, cq_second = (int(word) for word in words[1:])
        stat = json.loads(self.assert_run(self.softhca("stat", "--json"), 0).stdout)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, ""))
        record = self.record_of(process.pid)
        header = record["header"]
        self.assertEqual((header["schema"], header["kind"], header["program"], header["pid"]),
                         (1, "softhca-record", "cli_recorded", process.pid))

        # Which thread did what, in its order.
        def rounds(qpn, cqn, line):
            some = [{"post": qpn, "wqes": 4, "inline": 0, "signaled": 1, "reads": 0, "bytes": 256,
                     "line": line, "blueflame": False}, {"poll": cqn, "cqes": 1},
                    {"post": qpn, "wqes": 1, "inline": 1, "signaled": 1, "reads": 0, "bytes": 8,
                     "line": None, "blueflame": True}, {"poll": cqn, "cqes": 1}]
            return [{"barrier": 0}, *(ROUNDS * some), {"barrier": 0}]

        self.assertEqual(len(record["threads"]), 2)
        self.assertEqual(record["begins"], set(record["threads"]))
        by_qp = {events[1]["post"]: events for events in record["threads"].values()}
        lines = {qpn: by_qp[qpn][1]["line"] for qpn in (first, second)}
        self.assertNotEqual(*lines.values())
        self.assertEqual(by_qp[first], rounds(first, cq_first, lines[first]))
        known = rounds(second, cq_second, lines[second])
        self.assertEqual(by_qp[second][:len(known)], known)
        rest = by_qp[second][len(known):]
        self.assertEqual(rest[1::2], EXTENDED_POSTS * [{"poll": cq_second, "cqes": 1}])
        self.assertEqual([(post["post"], post["wqes"], post["bytes"], post["signaled"],
                           post["blueflame"]) for post in rest[::2]],
                         EXTENDED_POSTS * [(second, 1, 100, 1, True)])
        self.assertNotIn(rest[0]["line"], lines.values())

        # The sums are the totals, and these are the device's counters.
        self.assert_sums(record)
        for qp in stat["qps"]:
            counters = qp["counters"]
            totals = record["qp_totals"][qp["qp"]]
            self.assertEqual([totals["wqes"], totals["doorbells"], totals["blueflame"]],
                             [counters["wqes"], counters["doorbells"], counters["blueflame"]])
        for cq in stat["cqs"]:
            self.assertEqual(record["cq_totals"][cq["cq"]]["cqes"],
                             cq["counters"]["dma_write_cqe"])
        self.assertEqual(record["qp_totals"][first]["payload_reads"], 4 * ROUNDS)

        # The objects: a thread domain spares the locks, and so does a CQ of a single thread.
        self.assertEqual(set(record["qps"]), {first, second})
        self.assertEqual({key: record["qps"][first][key] for key in
                          ("send_cq", "depth", "lock", "uuar_lock")},
                         {"send_cq": cq_first, "depth": 32, "lock": False, "uuar_lock": False})
        self.assertEqual({key: record["qps"][second][key] for key in ("lock", "uuar_lock")},
                         {"lock": True, "uuar_lock": False})
        self.assertEqual([record["cqs"][number]["lock"] for number in (cq_first, cq_second)],
                         [True, False])
        shown = {qp["qp"]: qp for qp in stat["qps"]}
        for qpn, qp in record["qps"].items():
            self.assertEqual((qp["page"], qp["context"]),
                             (shown[qpn]["uar_page"], shown[qpn]["context"]))
            self.assertIn(qp["uuar"], (0, 1))
        self.assertLess(record["lines"], 30, "rounds are compressed")

    def test_locks_without_threads_and_with_shared_uuars(self):
        record, _, (_, second, *_) = self.run_program("destroy", MLX5_SINGLE_THREADED="1")
        for qp in record["qps"].values():
            self.assertEqual((qp["lock"], qp["uuar_lock"]), (False, False))
        for cq in record["cqs"].values():
            self.assertIs(cq["lock"], False)
        for uar in ("dynamic", "static"):
            record, _, (first, second, *_) = self.run_program(
                "destroy", "--uar", uar, MLX5_TOTAL_UUARS="4", MLX5_NUM_LOW_LAT_UUARS="0")
            self.assertEqual((record["qps"][first]["lock"], record["qps"][first]["uuar_lock"]),
                             (False, False))
            self.assertEqual((record["qps"][second]["lock"], record["qps"][second]["uuar_lock"]),
                             (True, True), uar)

    def test_what_the_program_leaves_open_has_totals(self):
        for how in ("exit", "_exit"):
            record, err, numbers = self.run_program(how)
            self.assertEqual(err, "")
            self.assertEqual(set(record["qp_totals"]), set(numbers[:2]))
            self.assert_sums(record)

    @unittest.skipIf(os.environ.get("HEDDLE_SANITIZE") == "thread",
                     "ThreadSanitizer cannot start threads in a child whose parent had some")
    def test_a_forked_child_writes_its_own(self):
        record, err, _ = self.run_program("fork")
        self.assertEqual(err, "")
        files = glob.glob(self.path("record.*"))
        self.assertEqual(len(files), 2, files)
        for file in files:
            self.assert_sums(read(file))
            self.assertEqual(file, self.path(f"record.{read(file)['header']['pid']}"))
        self.assertEqual(len(record["threads"]), 2)
        self.assertEqual(record["begins"], set(record["threads"]))

    def test_the_name_may_place_the_pid(self):
        os.makedirs(self.path("folder"))
        result = self.softhca("run", "--record", self.path("folder", "a-%p-%p.jsonl"), "--",
                              PROGRAM, "destroy")
        self.assert_run(result, 0)
        name, = os.listdir(self.path("folder"))
        pid = read(self.path("folder", name))["header"]["pid"]
        self.assertEqual(name, f"a-{pid}-{pid}.jsonl")

    def test_a_program_without_queues_leaves_no_file(self):
        self.assert_run(self.softhca("run", "--record", self.path("record"), "ibv_devinfo"), 0)
        self.assertEqual(glob.glob(self.path("record*")), [])

    def test_the_limit_of_lines_is_kept_and_said(self):
        record, err, numbers = self.run_program("vary", "--record-limit", "20")
        self.assertEqual(err, "")
        self.assertEqual(record["truncated"], {0, 1})
        for qpn in numbers[:2]:
            self.assertLess(sums(record, qpn)["wqes"], record["qp_totals"][qpn]["wqes"])
        # A header, two QPs and CQs with totals, and for each thread its begin, 20 lines, and two more at
        # its end.
        self.assertEqual(record["lines"], 1 + 4 + 4 + 2 * 23)
        whole, _, _ = self.run_program("vary")
        self.assertEqual(whole["truncated"], set())
        self.assert_sums(whole)

    def test_a_file_that_cannot_be_written_is_refused(self):
        self.write("plain", "")
        for name, why in (("none/record", "none: No such file or directory"),
                          ("plain/record", "Not a directory"), ("%p/x", "No such file")):
            for result in (self.softhca("run", "--record", self.path(name), "echo", "began"),
                           self.softhca("run", "echo", "began",
                                        env={"SOFTHCA_RECORD": self.path(name)})):
                self.assert_run(result, 125, err="the run record ")
                self.assertIn("cannot be written: ", result.stderr)
                self.assertIn(why, result.stderr)
                self.assertEqual(result.stdout, "")
        self.assert_run(self.softhca("run", "--record-limit", "many", "true"), 125,
                        err="--record-limit 'many' is not possible: it must be a number")

    def test_a_record_that_cannot_grow_is_said_once(self):
        process = self.start("limit")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        path = self.path(f"record.{process.pid}")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(f"the run record {path} cannot be written (File too large)", err)
        self.assertLessEqual(os.path.getsize(path), 512)

    def test_doorbells_of_heddle_itself(self):
        """The direct path writes registers and reads CQEs itself, and announces both."""
        for path in ("direct", "verbs"):
            pattern = self.path(path + "-%p")
            self.assert_run(self.softhca(
                "run", "--record", pattern, "--record-limit", "1000000", "--", HEDDLE, "bench",
                "message-rate", "--threads", "2", "--path", path, "--category", "dynamic",
                "--repetitions", "1", "--seconds", "0.01"), 0)
            records = [read(file) for file in glob.glob(pattern.replace("%p", "*"))]
            sender, = (record for record in records if record["threads"])
            self.assertEqual(sender["truncated"], set())
            self.assert_sums(sender)
            # Each thread has its endpoint; they begin at one barrier.
            self.assertEqual(len(sender["qps"]), 2)
            for qp in sender["qps"].values():
                self.assertEqual(qp["lock"], None if path == "direct" else False)
            workers = [events for events in sender["threads"].values()
                       if any("post" in event for event in events)]
            for events in workers:
                self.assertIn({"barrier": 0}, events)
                self.assertEqual(len({event["post"] for event in events if "post" in event}), 1)


if __name__ == "__main__":
    main()
