# SPDX-License-Identifier: BSD-2-Clause
"""A verdict can fail: values that say nothing of a figure come out as unlike the paper. They are a constant,
a straight line, and the values of another figure. The paper's own values come out as like it."""

import random
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "report"))
from heddle_report import catalogue, likeness  # noqa: E402
from heddle_report.experiments import endpoints  # noqa: E402
from heddle_report.model import STATES  # noqa: E402
from heddle_report.reference import table  # noqa: E402

EXPERIMENTS = {each.key: each for each in catalogue.all_experiments()}
FIGURES = endpoints.paper_figures()
CATEGORIES = {name: key for key, name in endpoints.CATEGORIES.items()}


def verdict(key, rows):
    said = EXPERIMENTS[key].verdict(list(rows))
    assert said.state in STATES, said
    return said


def rate_rows(figure, values, paths=("verbs", "direct"), cores=16):
    """Lines of `heddle bench message-rate`, `global-array` or `stencil`."""
    rows = []
    for path in paths:
        if figure == "12":
            for category, key in CATEGORIES.items():
                rows.append({"category": key, "path": path, "posting": "conservative", "threads": 16, "cores": cores,
                             "oversubscribed": cores < 16, "result": "correct",
                             "read_mmsgs_per_s": values["RDMA read", category],
                             "write_mmsgs_per_s": values["RDMA write", category]})
            continue
        for (name, x), value in values.items():
            if figure == "14":
                processes, threads = map(int, name.split("."))
                rows.append({"category": CATEGORIES[x], "path": path, "processes": 2 * processes, "threads": threads,
                             "cores": cores, "oversubscribed": cores < 16, "messages": 1000, "mmsgs_per_s": value,
                             "samples": [1e-3 / value] * 3, "result": "correct"})
                continue
            threads = x if figure in ("2b", "3") else 16
            rows.append({"series": name, "x": x, "x_is": "threads" if figure in ("2b", "3") else "x", "path": path,
                         "threads": threads, "cores": cores, "oversubscribed": threads > cores,
                         "mmsgs_per_s": value, "quartiles": [value, value],
                         "paper_mmsgs_per_s": FIGURES[figure][name, x]})
    return rows


def state(figure, values, **options):
    return verdict(f"endpoints-{figure}", rate_rows(figure, values, **options)).state


def lines(keys):
    """Straight lines: rising with x, falling with it, and over the places on the axis."""
    xs = list(dict.fromkeys(x for _, x in keys))
    place = {x: number for number, x in enumerate(xs)}
    by_x = place if isinstance(xs[0], str) else {x: x for x in xs}
    most = max(by_x.values())
    yield {key: 10 * (by_x[key[1]] + (0 if by_x is not place else 1)) for key in keys}
    yield {key: 1.05 * most - by_x[key[1]] for key in keys}
    yield {key: 20 + 15 * place[key[1]] for key in keys}


class Figures(unittest.TestCase):
    """Those of the endpoints paper, of which every value is at hand."""

    def test_the_papers_values_are_like_it(self):
        self.assertEqual(set(FIGURES), {"2b", "3", "5", "7", "8a", "8b", "9", "10", "11", "12", "14"})
        for figure, values in FIGURES.items():
            self.assertEqual(state(figure, values), "like", figure)
            self.assertEqual(state(figure, {key: 0.03 * value for key, value in values.items()}), "like",
                             f"{figure}: another machine")

    def test_noise_is_no_difference(self):
        numbers = random.Random(7)
        for figure, values in FIGURES.items():
            noisy = {key: value * numbers.uniform(0.9, 1.1) for key, value in values.items()}
            self.assertEqual(state(figure, noisy), "like", figure)

    def test_a_constant_is_unlike(self):
        numbers = random.Random(7)
        for figure, values in FIGURES.items():
            self.assertEqual(state(figure, dict.fromkeys(values, 50)), "unlike", figure)
            noisy = {key: numbers.uniform(40, 60) for key in values}
            self.assertEqual(state(figure, noisy), "unlike", figure)

    def test_a_straight_line_is_unlike(self):
        for figure, values in FIGURES.items():
            for number, line in enumerate(lines(values)):
                self.assertEqual(state(figure, line), "unlike", f"{figure}, line {number}")
            order = {x: place for place, x in enumerate(dict.fromkeys(x for _, x in values))}
            for name, best in likeness.null_models(values, order, endpoints.CRITERION).items():
                self.assertEqual(state(figure, best), "unlike", f"{figure}, {name}")

    def test_another_figures_values_are_unlike(self):
        same = []
        for figure, values in FIGURES.items():
            for other, others in FIGURES.items():
                if others != values and state(figure, likeness.by_place(others, values)) != "unlike":
                    same.append((figure, other))
        # In the paper the five curves of figure 8 are those of figure 7: neither sharing costs anything.
        self.assertEqual(same, [("8a", "7"), ("8b", "7")])

    def test_curves_in_another_order_are_unlike(self):
        values = FIGURES["12"]
        backwards = dict(zip(values, reversed(values.values())))
        self.assertEqual(state("12", backwards), "unlike")

    def test_one_curve_that_is_off_is_partly(self):
        for figure, name in (("11", "All"), ("9", "w/o Inlining"), ("12", "Static"), ("14", "Static")):
            off = {key: value * (1.6 if name in key else 1) for key, value in FIGURES[figure].items()}
            said = verdict(f"endpoints-{figure}", rate_rows(figure, off))
            self.assertEqual(said.state, "partly", said.text)
            self.assertIn(f"not {name} (", said.text)

    def test_a_path_that_is_off_is_partly(self):
        good = rate_rows("11", FIGURES["11"], paths=("verbs",))
        bad = rate_rows("11", dict.fromkeys(FIGURES["11"], 50), paths=("direct",))
        self.assertEqual(verdict("endpoints-11", good + bad).state, "partly")

    def test_what_was_not_measured_is_not_left_out(self):
        few = dict(list(FIGURES["3"].items())[:15])
        self.assertEqual(state("3", few), "cannot")

    def test_fewer_cores_than_threads_show_nothing(self):
        for figure, values in FIGURES.items():
            said = verdict(f"endpoints-{figure}", rate_rows(figure, values, cores=2))
            self.assertEqual(said.state, "cannot", figure)
            threads = 32 if figure == "14" else 16  # of both nodes
            self.assertIn(f"{threads} threads take turns on 2 cores", said.text)
            panels = EXPERIMENTS[f"endpoints-{figure}"].panels(rate_rows(figure, values, cores=2))
            self.assertIn("take turns on 2 cores", panels[0].note, figure)
            self.assertEqual(panels[0].shaded_above, 2 if figure in ("2b", "3") else None, figure)
        self.assertEqual(endpoints.turns_note(rate_rows("3", FIGURES["3"])), ("", None))

    def test_processor_time_is_in_no_verdict_and_no_plot(self):
        rows = rate_rows("3", FIGURES["3"])
        with_cpu = [{**row, "mmsgs_per_cpu_s": 1000 * row["x"], "cpu_quartiles": [1, 2]} for row in rows]
        of = EXPERIMENTS["endpoints-3"]
        self.assertEqual(of.panels(rows), of.panels(with_cpu))
        self.assertEqual(of.points(rows), of.points(with_cpu))
        self.assertEqual(of.verdict(rows), of.verdict(with_cpu))

    def test_a_wrong_result_is_unlike_on_any_machine(self):
        for figure in ("12", "14"):
            rows = rate_rows(figure, FIGURES[figure], cores=2)
            rows[0]["result"] = "wrong"
            self.assertEqual(verdict(f"endpoints-{figure}", rows).state, "unlike")


SIZES = (512, 1024, 2048, 4096, 8192)
EXPECTED = {512: -4.0, 1024: 0.0, 2048: 4.0, 4096: 9.0, 8192: 15.0}


def gain_rows(gain, expected=EXPECTED.get, **more):
    """gain, expected: bytes -> percent."""
    return [{"channel": channel, "bytes": size, "buffers": 1, "separate_pages": False, "processes": 2,
             "processors_online": 2, "seconds_without": [1e-6] * 3,
             "seconds_with": [1e-6 * (1 - gain(size) / 100)] * 3, "expected_gain": expected(size) / 100, **more}
            for channel in ("send", "ring") for size in SIZES]


class Reuse(unittest.TestCase):
    def test_gains(self):
        def of(gain, key="reuse-pingpong", **more):
            return verdict(key, gain_rows(gain, **more)).state

        self.assertEqual(of({**EXPECTED, 8192: 14}.get), "like")
        for constant in (0, 5, 8, 14):
            self.assertEqual(of(lambda size, value=constant: value), "unlike", constant)
        self.assertEqual(of(lambda size: 14 - size / 1024), "unlike", "a falling line")
        self.assertEqual(of(lambda size: 20 * size / 8192 - 6), "unlike", "a line that is near at all sizes")

    def test_spectrum(self):
        """The paper's value is that with learning inside; what is learnt before is beside equation 6."""
        papers, learnt = {**EXPECTED, 8192: 12.7}.get, {**EXPECTED, 8192: 25}.get

        def rows(inside, before, kinds=("reuse-spectrum",)):
            return [{**row, "channel": "send", "buffers": 200, "learning": learning, "experiment": kind}
                    for kind in kinds for learning, gain, expected in (
                        ("inside", inside, {**EXPECTED, 8192: -20}.get), ("before", before, learnt))
                    for row in gain_rows(gain, expected)[:len(SIZES)]]

        def of(inside, before):
            return verdict("reuse-spectrum", rows(inside, before)).state

        self.assertEqual(of(papers, learnt), "like")
        self.assertEqual(of({**EXPECTED, 8192: -20}.get, learnt), "unlike", "what it costs to learn is inside")
        self.assertEqual(of(papers, lambda size: 0), "unlike")
        for constant in (0, 5, 8, 12.7):
            self.assertEqual(of(lambda size, value=constant: value, lambda size, value=constant: value), "unlike")
        for slope in (5, 15, 20):
            line = (lambda size, a=slope: a * size / 8192 - 6)
            self.assertEqual(of(line, line), "unlike", "a straight line")
        few = [{**row, "spectrum": True, "buffers": 20, "buffers_wanted": 200} for row in rows(papers, learnt)]
        said = verdict("reuse-spectrum", few)
        self.assertEqual(said.state, "cannot")
        self.assertIn("only 20 buffers", said.text)
        both = rows(papers, learnt, ("reuse-spectrum-put", "reuse-spectrum-get"))
        names = {point.key[0] for point in EXPERIMENTS["reuse-spectrum-one-sided"].points(both)}
        self.assertEqual(names, {f"RDMA {kind}, {learning}" for kind in ("writes", "reads")
                                 for learning in ("learning inside", "learnt before")})
        self.assertEqual(verdict("reuse-spectrum-one-sided", both).state, "unlike", "the paper has no 12.7 % there")

    def test_operations_of_an_mpi(self):
        def rows(name, gain, ranks=2, learnings=("inside", "before"), expected=EXPECTED.get):
            messages = {"bcast": 2, "scatter": 3}.get(name, 1)
            return [{"mpi": "MPICH", "operation": name, "bytes": size, "ranks": ranks, "cores": 4, "way": way,
                     "learning": learning, "saved_ns": expected(size) * 10 / messages,
                     "seconds": [1e-6 * (1 - (gain(size) if way == "reuse" else 0) / 100)] * 5}
                    for learning in learnings for size in SIZES for way in ("reuse", "copied")]

        def of(name, gain, **more):
            return verdict(f"reuse-mpi-{name}", rows(name, gain, **more)).state

        near = {"put": 20, "get": 17, "bcast": 25}
        for name, gain in near.items():
            ranks = 4 if name == "bcast" else 2
            expected = {**EXPECTED, 8192: gain}.get
            self.assertEqual(of(name, expected, expected=expected, ranks=ranks), "like", name)
            for constant in (0, 8, gain):
                self.assertEqual(of(name, lambda size, value=constant: value, expected=expected, ranks=ranks), "unlike")
            self.assertEqual(of(name, lambda size: gain * size / 8192 - 6, expected=expected, ranks=ranks),
                             "unlike", "a straight line")
            self.assertEqual(of(name, {**EXPECTED, 512: -30}.get, expected=expected, ranks=ranks), "unlike", "a loss")
        self.assertEqual(of("scatter", EXPECTED.get, ranks=4), "like")
        self.assertEqual(of("scatter", lambda size: EXPECTED[size] / 3, ranks=4), "unlike", "one message of three")
        self.assertEqual(of("bcast", EXPECTED.get, ranks=8), "cannot")
        self.assertEqual(of("put", EXPECTED.get, learnings=("inside",)), "cannot", "a series is missing")

    def test_a_loss_counts_as_a_gain_does(self):
        lossy = {**EXPECTED, 8192: 14, 512: -30}
        self.assertEqual(verdict("reuse-pingpong", gain_rows(lossy.get)).state, "unlike")
        nothing = gain_rows(lossy.get, expected=lambda size: 0)
        self.assertEqual(verdict("reuse-pingpong", nothing).state, "unlike")
        nothing = gain_rows(lambda size: -1, expected=lambda size: 0)
        self.assertEqual(verdict("reuse-pingpong", nothing).state, "cannot")
        self.assertIn("nothing loses more than 5 %", verdict("reuse-pingpong", nothing).text)
        # A median of noise is no loss, and the page says that it may hide one.
        nothing[0]["seconds_with"] = [0.5e-6, 1.2e-6, 1.3e-6]
        said = verdict("reuse-pingpong", nothing)
        self.assertEqual(said.state, "cannot")
        self.assertIn("the spread hides a loss of 5 % at 1 of 10 points", said.text)

    def test_more_processes_than_cores(self):
        rows = gain_rows(EXPECTED.get, processes=4)
        self.assertEqual(verdict("reuse-bcast", rows).state, "cannot")
        self.assertIn("4 processes take turns on 2 cores", verdict("reuse-bcast", rows).text)

    def test_break_even(self):
        paper = {}
        for row in table("reuse-break-even"):
            paper[row["channel"], int(row["bytes"])] = float(row["uses"])

        def of(uses):
            sizes = sorted({size for _, size in paper})
            return verdict("reuse-break-even", [{"sizes": [{"bytes": size, "ways": {
                way: {"uses": uses(way, size)} for way in ("send", "ring", "one-sided")}}
                for size in sizes]}]).state

        following = {"send": "ring", "ring": "one-sided", "one-sided": "send"}
        self.assertEqual(of(lambda way, size: paper[way, size]), "like")
        self.assertEqual(of(lambda way, size: 1.1 * paper[way, size]), "like")
        self.assertEqual(of(lambda way, size: 100), "unlike", "a constant")
        self.assertEqual(of(lambda way, size: 600 - size / 16), "unlike", "a straight line")
        self.assertEqual(of(lambda way, size: paper[following[way], size]), "unlike", "another channel's values")
        self.assertEqual(of(lambda way, size: None if way == "send" else paper[way, size]), "unlike", "never")

    def test_lookups(self):
        def of(hash_ns, tree_ns):
            by = [{"buffers": count, "ours": 2.0, "chained_hash": hash_ns(count), "tree": tree_ns(count)}
                  for count in (1, 10, 100, 1000, 10000)]
            return verdict("reuse-lookup", [{"lookup_ns": by, "instructions": {"new": 31.0}}]).state

        self.assertEqual(of(lambda count: 3, lambda count: 3 + 0.5 * len(str(count)) ** 2), "like")
        self.assertEqual(of(lambda count: 3, lambda count: 3), "unlike", "a constant")
        self.assertEqual(of(lambda count: count / 10, lambda count: count / 10), "unlike", "a straight line")
        self.assertEqual(of(lambda count: 9, lambda count: 3 + 0.5 * len(str(count)) ** 2), "unlike")

    def test_what_programs_send(self):
        def of(*shares):
            return verdict("reuse-programs", [{
                "program": name, "missing": None, "good": True, "counts": {
                    "copied_by_size": [1000 - share], "gathered_by_size": [share], "buffers_by_uses": [0, 1]}}
                for name, share in zip(("cg", "lu", "multigrid", "lattice"), shares)]).state

        self.assertEqual(of(430, 987, 769, 443), "like")
        self.assertEqual(of(430, 987, 640, 443), "partly")
        self.assertEqual(of(657, 657, 657, 657), "unlike", "a constant")
        self.assertEqual(of(559, 728, 898, 1000), "unlike", "a straight line")
        self.assertEqual(of(987, 769, 443, 430), "unlike", "other programs' values")
        self.assertEqual(of(430, 987, 769), "cannot", "a program is missing")


def operation_rows(gain, operations, sizes, ranks=2, cores=2):
    """gain: operation, bytes -> percent of the time by verbs."""
    return [{"mpi": "MPICH", "operation": name, "bytes": size, "ranks": ranks, "cores": cores, "way": way,
             "seconds": [1e-6 * (1 - gain(name, size) / 100 if way == "direct" else 1)] * 5}
            for name in operations for size in sizes for way in ("verbs", "direct")]


class Direct(unittest.TestCase):
    def test_point_to_point(self):
        sizes = (8, 64, 512, 4096, 16384, 65536, 1 << 20)

        def of(gain):
            return verdict("direct-point-to-point", operation_rows(
                lambda name, size: gain(size), ("latency", "bandwidth"), sizes)).state

        self.assertEqual(of(lambda size: 10 if size < 4096 else 4 if size <= 16384 else 0), "like")
        self.assertEqual(of(lambda size: 10 if size < 512 else 0), "partly", "512 B gains nothing")
        for constant in (-5, 0, 3, 4, 10):
            self.assertEqual(of(lambda size, value=constant: value), "unlike", constant)
        for first in (3, 6, 10, 30):
            for zero in (65536, 1 << 20):  # where the falling line reaches zero
                self.assertEqual(of(lambda size, a=first, b=zero: a * (1 - size / b)), "unlike", (first, zero))
        self.assertEqual(of(lambda size: size / (1 << 20)), "unlike", "a rising line")
        self.assertEqual(of(lambda size: 10 if size < 4096 else 4 if size <= 16384 else -10), "unlike", "a loss")

    def test_collectives(self):
        names, sizes = ("allgather", "scatter", "bcast"), (8, 512, 8192, 65536, 1 << 20)

        def of(gain, **more):
            return verdict("direct-collectives", operation_rows(gain, names, sizes, **more)).state

        def papers(name, size):
            return {"allgather": 30, "scatter": 52}.get(name, 0) if size >= 65536 else 0

        self.assertEqual(of(papers), "like")
        self.assertEqual(of(lambda name, size: -10 if name == "bcast" else papers(name, size)), "partly")
        self.assertEqual(of(lambda name, size: -10 if size < 65536 else papers(name, size)), "unlike")
        for value in (0, 25, 40, 50):
            self.assertEqual(of(lambda name, size, value=value: value), "unlike", "a constant")
            self.assertEqual(of(lambda name, size, value=value: value * size / (1 << 20)), "unlike", "a line")
        self.assertEqual(of(papers, ranks=4), "cannot")

    def test_heap(self):
        def of(verbs, direct):
            return verdict("direct-heap", [{"way": way, "ranks": ranks, "heap_bytes": [1000 * heap(ranks)]}
                                           for way, heap in (("verbs", verbs), ("direct", direct))
                                           for ranks in (2, 4, 8)]).state

        self.assertEqual(of(lambda ranks: 100 + 20 * ranks, lambda ranks: 100), "like")
        self.assertEqual(of(lambda ranks: 100 + 20 * ranks, lambda ranks: 100 + 8 * ranks), "partly")
        self.assertEqual(of(lambda ranks: 100, lambda ranks: 100), "unlike", "a constant")
        self.assertEqual(of(lambda ranks: 100 + 20 * ranks, lambda ranks: 100 + 20 * ranks), "unlike", "a line")
        self.assertEqual(of(lambda ranks: 100, lambda ranks: 100 + 20 * ranks), "unlike", "the other way round")


class Criteria(unittest.TestCase):
    def test_each_is_stated(self):
        for each in EXPERIMENTS.values():
            self.assertGreater(len(each.criterion), 40, each.key)
            self.assertTrue(each.criterion.endswith("."), each.key)


if __name__ == "__main__":
    unittest.main(verbosity=2)
