# SPDX-License-Identifier: BSD-2-Clause
"""A run as it is shown: what came of each experiment, in the words of the page and of the document."""

from pathlib import Path

from . import model, samples

STATES = {"like": "as in the paper", "partly": "partly as in the paper", "unlike": "unlike the paper",
          "cannot": "cannot be shown here", "failed": "failed", "skipped": "skipped"}
BESIDE_PEERS = {**STATES, "like": "level or better", "partly": "in part level or better", "unlike": "behind"}
OF_OURS = {**STATES, "like": "as wanted", "partly": "partly as wanted", "unlike": "not as wanted"}
SOFTWARE_HCA = ("Measured on a software HCA: locks, cache lines, copies and system calls of this machine, and no "
                "rates of an adapter. What the papers have measured stands beside; shapes compare, numbers do not.")


def state_text(experiment, state):
    of = (BESIDE_PEERS if experiment.paper == "peers" else
          OF_OURS if experiment.where == model.NOT_IN_THE_PAPER else STATES)
    return of[state]


def value_text(value):
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.{1 if size >= 100 else 2 if size >= 1 else 3}f}"


def points_rows(experiment, outcome):
    """Heading and rows of the table of all values."""
    points = experiment.points(outcome.rows)
    paper = any(point.paper is not None for point in points)
    judged = any(point.said for point in points)
    head = [*experiment.columns, "median", experiment.spread, *(["paper"] if paper else []),
            *(["verdict"] if judged else [])]
    return head, [[*map(str, each.key), *each.cells, value_text(each.value),
                   "–" if each.low is None else f"{value_text(each.low)} to {value_text(each.high)}",
                   *([value_text(each.paper)] if paper else []), *([each.said] if judged else [])] for each in points]


def adapter(facts):
    names = ", ".join(each.get("device", "?") for each in facts.get("devices", []))
    return f"software HCA ({names})" if facts.get("software_hca") else names or "unknown"


def facts_line(facts):
    """Where and when it was measured."""
    hosts = f"hosts {', '.join(facts['hosts'])}, " if facts.get("hosts") else ""
    return (f"{adapter(facts)}, {hosts}{facts.get('processor')}, {facts.get('processors')} processors, "
            f"{facts.get('kernel')}, {facts.get('heddle')}, {facts.get('started')}, {facts.get('mode')}")


class Run:
    def __init__(self, folder, experiments):
        self.folder = Path(folder)
        self.facts = samples.load_run(folder)
        self.outcomes = {each.key: samples.load_outcome(folder, each) for each in experiments}
        self.name = self.folder.resolve().name

    def is_done(self, experiment):
        outcome = self.outcomes[experiment.key]
        return outcome is not None and outcome.status == "done"

    def judged(self, experiments):
        """Title -> its judged.Rows, of each of these that has some."""
        return {each.title: each.rows(self.outcomes[each.key].rows) for each in experiments
                if each.rows and self.is_done(each)}

    def state_of(self, experiment):
        """The word of its state, and the verdict's line."""
        outcome = self.outcomes[experiment.key]
        if outcome is None:
            return "skipped", "It has not been run."
        if outcome.status != "done":
            return outcome.status, outcome.reason
        verdict = experiment.verdict(outcome.rows)
        return verdict.state, verdict.text
