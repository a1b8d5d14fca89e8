# SPDX-License-Identifier: BSD-2-Clause
"""What `heddle predict` says of Scalable Communication Endpoints (ICPADS 2018): its errors beside models that
know nothing, and the paper's kernels as they were recorded here, replayed on the model."""

from .. import likeness
from ..model import NOT_IN_THE_PAPER, Experiment, Panel, Point, Series, Verdict
from ..values import distinct
from .endpoints import CATEGORIES, PREDICTED
from .kernels import paper_of

MODELS = {"model": "the model", "null_constant": "a constant", "null_free_sharing": "sharing is free",
          "null_nearest": "the nearest fitted point"}
MEDIAN, MEAN, RANK = 0.07, 0.11, 0.97  # of the hard points, at most and at least
FAR = 0.2  # a point that is off by so much is named


def errors(rows, points="hard"):
    """figure ("all": of all) -> its line of the table of errors, where it has such points."""
    return {row["figure"]: row for row in rows if row.get("points") == points and row["count"]}


def error_points(rows):
    found = []
    for points in ("hard", "unseen"):
        for figure, row in errors(rows, points).items():
            found += [Point((figure, points, name, "median"), 100 * row[key]["median"]) for key, name in MODELS.items()]
            if figure == "all":
                found += [Point((figure, points, name, "mean"), 100 * row[key]["mean"]) for key, name in MODELS.items()]
    return found


def error_panels(rows):
    by = errors(rows)
    names = [figure if figure == "all" else f"Fig. {figure}" for figure in by]
    return [Panel("Predicted rates: error at points that fitted nothing", names, "", "median error, %", [
        Series(name, [max(100 * row[key]["median"], 0.1) for row in by.values()], predicted=key == "model")
        for key, name in MODELS.items()], y_scale="log", y_from_zero=False)]


def far_off(rows, role):
    """In words: the curves that have points further off than FAR, the worst first, with all of these points."""
    points = [row for row in rows if row.get("role") == role]
    curves = {}
    for row in points:
        off = row["predicted_mmsgs_per_s"] / row["paper_mmsgs_per_s"] - 1
        if abs(off) > FAR:
            curves.setdefault((row["figure"], row["curve"], "fast" if off > 0 else "slow"), []).append((abs(off), row["x"]))
    count = sum(len(its) for its in curves.values())
    said = f"{count} of the {len(points)} {role} points are off by more than {100 * FAR:.0f} %"
    worst = sorted(curves.items(), key=lambda item: -max(item[1])[0])
    each = [f"Fig. {figure}, {curve} ({', '.join(str(x) for off, x in its)}), "
            f"{' to '.join(distinct(f'{100 * end:.0f}' for end in (min(its)[0], max(its)[0])))} % too {way}"
            for (figure, curve, way), its in worst]
    return said + (f": {'; '.join(each)}." if each else ".")


def error_verdict(rows):
    whole = errors(rows).get("all")
    if not whole:
        return Verdict("cannot", "No point has been predicted.")
    its = whole["model"]
    text = (f"{whole['count']} hard points: the predicted rate is off by {100 * its['median']:.1f} % (median) and "
            f"{100 * its['mean']:.1f} % (mean), rank correlation {whole['rank']:.3f}. Medians of the null models: "
            + ", ".join(f"{name} {100 * whole[key]['median']:.0f} %" for key, name in MODELS.items() if key != "model")
            + f". {far_off(rows, 'hard')} {far_off(rows, 'fitted')}")
    good = [its["median"] <= MEDIAN, its["mean"] <= MEAN, whole["rank"] >= RANK,
            all(its["median"] < whole[key]["median"] / 2 for key in MODELS if key != "model")]
    return Verdict("like" if all(good) else "partly" if good[0] and good[3] else "unlike", text)


# The kernels, as they were recorded.

def replayed(rows):
    """kernel -> endpoints -> row."""
    found = {}
    for row in rows:
        found.setdefault(row["kernel"], {})[row["endpoints"]] = row
    return found


def papers_ratio(row, category):
    values = [paper_of(row["figure"], row["curve"], each) for each in (category, "mpi-everywhere")]
    return values[0] / values[1] if None not in values else None


def ratio(by, category):
    base = by.get("mpi-everywhere")
    return by[category]["predicted_mmsgs_per_s"] / base["predicted_mmsgs_per_s"] if base and category in by else None


def replay_panels(rows):
    return [Panel(kernel, list(CATEGORIES.values()), "", "predicted rate, relative to MPI everywhere", [
        Series(f"{PREDICTED}, replayed", [ratio(by, each) for each in CATEGORIES], predicted=True),
        Series("paper", [papers_ratio(next(iter(by.values())), each) for each in CATEGORIES], paper=True)])
        for kernel, by in replayed(rows).items()]


def replay_points(rows):
    return [Point((kernel, name), row["predicted_mmsgs_per_s"], row["low"], row["high"],
                  paper_of(row["figure"], row["curve"], name) if name in CATEGORIES else None)
            for kernel, by in replayed(rows).items() for name, row in by.items()]


def replay_verdict(rows):
    said, states = [], []
    for kernel, by in replayed(rows).items():
        unequal = [name for name, row in by.items() if row["wqes"] != row["counted_wqes"] or
                   row["blueflame"] != row["counted_blueflame"]]
        if unequal:
            return Verdict("unlike", f"{kernel}: the replay by {', '.join(unequal)} has other counts than the device.")
        missing = [name for name in CATEGORIES if name not in by]
        if missing:
            return Verdict("unlike", f"{kernel}: not predicted: {', '.join(missing)}.")
        row = next(iter(by.values()))
        off = {name: ratio(by, name) / papers_ratio(row, name) - 1 for name in CATEGORIES
               if name != "mpi-everywhere" and papers_ratio(row, name)}
        far = [name for name, error in off.items() if abs(error) > 0.25]
        states.append("like" if not far else "partly" if len(far) < len(off) / 2 else "unlike")
        said.append(f"{kernel}, predicted ratio to MPI everywhere beside the paper's: " + ", ".join(
            f"{CATEGORIES[name]} {100 * error:+.0f} %" for name, error in off.items()))
    return Verdict(likeness.together(states), "Posts, requests and BlueFlame writes of each replay are those that the device counted. "
                   + ". ".join(said) + ".")


EXPERIMENTS = [
    Experiment(
        key="endpoints-predicted", paper="endpoints", where=NOT_IN_THE_PAPER,
        title="What a ConnectX-4 would do, predicted: the errors",
        question="How far off `heddle predict` is at the points of Figs. 2b, 3, 5 to 12 and 14 that fitted nothing, "
        "beside models that know nothing of contention.",
        commands=lambda mode: [["predict", "--errors", "--json"], ["predict", "--figures"]],
        seconds={"quick": 2, "full": 2}, columns=("figure", "points", "model", "what"), unit="% off, predicted",
        points=error_points, panels=error_panels, verdict=error_verdict,
        criterion=f"Hard points fitted nothing, are no configuration that did, and are off by more than 3 % if sharing "
        f"were free. As wanted: a median error of at most {100 * MEDIAN:.0f} %, a mean of at most {100 * MEAN:.0f} %, a "
        f"rank correlation of at least {RANK}, and half the error of each null model. Partly: the first and the last "
        "are so.",
        differences="Nothing here is measured: all rates are predicted by a model with 16 fitted values. It was fitted "
        "on points of the same paper, and its mechanisms were chosen by people who had seen all figures. Figure 6 has "
        "no values, and RDMA reads are not in the model. The verdict names all points that are far off.",
        needs=("figure",), more_is_better=False),
    Experiment(
        key="endpoints-replayed", paper="endpoints", where=NOT_IN_THE_PAPER,
        title="The paper's kernels, recorded here and predicted for a ConnectX-4",
        question="What the global array and the stencil would get in each category, from the record of a run.",
        commands=lambda mode: [["bench/replay.py", "--json"]], seconds={"quick": 2, "full": 2},
        columns=("kernel", "endpoints"), unit="million messages a second, predicted",
        points=replay_points, panels=replay_panels, verdict=replay_verdict,
        criterion="What the model makes of posts, requests and BlueFlame writes has to equal the device's counters. "
        "As wanted: each category's ratio to MPI everywhere is within 25 % of the paper's. Partly: more than half of "
        "them are.",
        differences="The runs are of this machine, the rates are predicted. A record has no time: neither what the kernels "
        "compute nor their waits for each other's messages. The global array also reads its tiles, for which the model "
        "has no cost; the paper's values beside it are those of its writes.",
        needs=("kernel", "figure", "curve", "endpoints", "predicted_mmsgs_per_s", "low", "high", "wqes", "counted_wqes",
               "blueflame", "counted_blueflame"), needs_source=True),
]
