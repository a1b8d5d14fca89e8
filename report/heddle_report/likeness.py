# SPDX-License-Identifier: BSD-2-Clause
"""Whether what was measured is like a paper's figure of which the values are at hand. One criterion for all
of them: each curve must be near the paper's at every point, and all curves together must be clearly nearer
to this figure than whatever says nothing of it: a constant, a straight line, another figure."""

import math
from dataclasses import dataclass, field

CURVES = (0, "curve", "curves")  # what is judged one by one: the part of a point's key, and its name
CLEARLY = 0.5  # the error is at most this share of that of the best null model
PARTLY = 0.5  # so many of the curves


@dataclass(frozen=True)
class Criterion:
    """ratios: values are compared by ratios; else by differences. tolerance: a factor, or a difference.
    scaled: units differ, so one common factor for all curves is taken out first."""
    ratios: bool
    tolerance: float
    scaled: bool = False

    def text(self, unit="", by=CURVES):
        _, one, many = by
        near = f"within a factor of {self.tolerance:g} of" if self.ratios else \
            f"within {self.tolerance:g}{unit} of"
        scaled = " One common factor for the whole figure is taken out first." if self.scaled else ""
        return (f"A {one} is like the paper's if all its points are {near} the paper's value.{scaled} "
                f"The figure is like it if all {many} are, and partly if half of them are. Otherwise it is "
                "unlike. It is also unlike if a null model is about as near: the best constant, the best "
                "straight line, or another figure's values. The root of the mean square error must be at "
                "most half of each null model's.")


@dataclass(frozen=True)
class Curve:
    name: str
    is_like: bool
    worst: str  # where it is the furthest from the paper's, in words


@dataclass(frozen=True)
class Likeness:
    state: str
    curves: list = field(default_factory=list)
    error: float = 0.0  # root of the mean square, in the logarithm or the unit
    null: tuple = ("", math.inf)  # the nearest null model, and its error
    what: str = CURVES[2]

    def text(self):
        good = [each for each in self.curves if each.is_like]
        parts = [f"{len(good)} of {len(self.curves)} {self.what} are like the paper's"]
        if bad := [f"{each.name} ({each.worst})" for each in self.curves if not each.is_like]:
            parts.append(f"not {', '.join(bad)}")
        if self.error > CLEARLY * self.null[1]:
            parts.append(f"{self.null[0]} is about as near")
        return "; ".join(parts)


def transformed(value, criterion):
    if not criterion.ratios:
        return value
    return math.log(value) if value > 0 else -math.inf


def limit_of(criterion):
    return math.log(criterion.tolerance) if criterion.ratios else criterion.tolerance


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


def deviations(found, paper, criterion):
    """By key, of those that both have. found, paper: key -> value."""
    both = {key: transformed(found[key], criterion) - transformed(value, criterion)
            for key, value in paper.items() if found.get(key) is not None}
    finite = [value for value in both.values() if math.isfinite(value)]
    shift = sum(finite) / len(finite) if criterion.scaled and finite else 0
    return {key: value - shift for key, value in both.items()}


def line_through(xs, values, weights):
    """The values at xs of the best straight line."""
    total = sum(weights)
    x_mean = sum(w * x for w, x in zip(weights, xs)) / total
    mean = sum(w * value for w, value in zip(weights, values)) / total
    spread = sum(w * (x - x_mean) ** 2 for w, x in zip(weights, xs))
    slope = (sum(w * (x - x_mean) * (value - mean) for w, x, value in zip(weights, xs, values)) / spread
             if spread else 0)
    return [mean + slope * (x - x_mean) for x in xs]


def null_models(paper, order, criterion):
    """By name: values that say nothing of the figure, each as near to it as it can be. paper: (curve, x) ->
    value; order: x -> its place on the axis."""
    keys = list(paper)
    values = [paper[key] for key in keys]
    weights = [1 / value ** 2 if criterion.ratios else 1 for value in values]
    level = (math.exp(sum(map(math.log, values)) / len(values)) if criterion.ratios else
             sum(values) / len(values))
    models = {"a constant": dict.fromkeys(keys, level)}
    axes = {"a straight line over the places": [order[x] for _, x in keys]}
    if all(isinstance(x, (int, float)) for _, x in keys):
        axes["a straight line"] = [x for _, x in keys]
    floor = min(values) / 10 if criterion.ratios else -math.inf
    for name, xs in axes.items():
        models[name] = {key: max(value, floor)
                        for key, value in zip(keys, line_through(xs, values, weights))}
    return models


def by_place(model, paper):
    """Another figure's values in the places of this one's: its curves and points in their order."""
    curves = {}
    for (name, _), value in model.items():
        curves.setdefault(name, []).append(value)
    rows, names, xs = list(curves.values()), {}, {}
    for name, x in paper:
        names.setdefault(name, len(names))
        xs.setdefault(x, len(xs))
    found = {}
    for name, x in paper:
        row = rows[names[name] % len(rows)]
        found[name, x] = row[xs[x] % len(row)]
    return found


def is_told_apart(model, paper, criterion):
    """Whether a null model differs from the paper's figure where it has values: some are out of the
    tolerance. (Figures 7 and 8 of the endpoints paper have the same curves as far as both go.)"""
    limit = limit_of(criterion)
    return any(abs(value) > limit for value in deviations(model, paper, criterion).values())


def worst_of(deviation, x, criterion, unit):
    where = f"at {x} " if x != "" else ""
    if not criterion.ratios:
        return f"{where}{deviation:+.0f}{unit}"
    if not math.isfinite(deviation):
        return f"{where}{'never' if deviation > 0 else 'nothing'}"
    return f"{where}{math.exp(deviation):.2g} times"


def compare(found, paper, criterion, others=None, unit="", by=CURVES):
    """Likeness of `found` to `paper`, both (curve, x) -> value. others: the values of other figures, by name.
    by: curves are judged one by one, or what else is a part of the key. Null models are of the curves over x
    anyway. No point is left out: if one of the paper's is not in `found`, nothing can be said."""
    part, _, what = by
    limit = limit_of(criterion)
    differences = deviations(found, paper, criterion)
    curves = []
    for name in dict.fromkeys(key[part] for key in paper):
        keys = [key for key in paper if key[part] == name]
        if missing := [str(key[1 - part]) for key in keys if key not in differences]:
            curves.append(Curve(name, False, f"not measured at {', '.join(missing)}"))
            continue
        worst = max(keys, key=lambda key: abs(differences[key]))
        curves.append(Curve(name, abs(differences[worst]) <= limit,
                            worst_of(differences[worst], worst[1 - part], criterion, unit)))
    if len(differences) < len(paper):
        return Likeness("cannot", curves, what=what)
    order = {x: place for place, x in enumerate(dict.fromkeys(key[1] for key in paper))}
    models = {**null_models(paper, order, criterion), **(others or {})}
    errors = {}
    for name, model in models.items():
        if is_told_apart(model, paper, criterion):
            errors[name] = root_mean_square(deviations(model, paper, criterion).values())
    nearest = min(errors.items(), key=lambda each: each[1], default=("", math.inf))
    error = root_mean_square(differences.values())
    share = sum(1 for each in curves if each.is_like) / len(curves)
    is_clear = error <= CLEARLY * nearest[1]
    state = ("like" if is_clear and share == 1 else "partly" if is_clear and share >= PARTLY else
             "unlike")
    return Likeness(state, curves, error, nearest, what)


def together(states):
    """The state of several comparisons that belong to one experiment."""
    states = list(states)
    return states[0] if len(set(states)) == 1 else "partly"
