# SPDX-License-Identifier: BSD-2-Clause
"""From an experiment's panels to those that are drawn: panels of one figure share their y scale, runs that
are compared are drawn over each other, and what does not fit is counted, so that the page can say it."""

from dataclasses import replace

MARGIN = 0.06  # of the scale, above and below what is drawn
# Error bars may make a linear scale this many times as long as the values alone do; more is cut off.
MOST_BY_BARS = 1.5


def bars_of(series):
    """(place, low, high) of each error bar."""
    if series.low is None or series.high is None:
        return []
    return [(i, low, high) for i, (value, low, high) in
            enumerate(zip(series.values, series.low, series.high)) if None not in (value, low, high)]


def values_of(panel):
    return [value for series in panel.drawn for value in series.values if value is not None]


def log_limits(group):
    reach = [value for panel in group for value in [
        *values_of(panel), *(mark for mark, _ in panel.marks),
        *(end for series in panel.drawn for _, *bar in bars_of(series) for end in bar)] if value > 0]
    if not reach:
        return None
    low, high = min(reach), max(reach)
    stretch = max((high / low) ** MARGIN, 1.05)
    return low / stretch, high * stretch


def linear_limits(group):
    """Limits that show all values, and error bars as far as they leave the values room."""
    reach = [value for panel in group for value in
             [*values_of(panel), *(mark for mark, _ in panel.marks)]]
    if not reach:
        return None
    from_zero = any(panel.y_from_zero or panel.is_bars for panel in group)
    low, high = min(reach + [0] * from_zero), max(reach + [0] * from_zero)
    room = (high - low or abs(high) or 1) * (MOST_BY_BARS - 1) / 2
    ends = [end for panel in group for series in panel.drawn for _, *bar in bars_of(series)
            for end in bar]
    bottom = max(min(ends, default=low), low - room)
    top = min(max(ends, default=high), high + room)
    low, high = min(low, bottom), max(high, top)
    margin = (high - low or 1) * MARGIN
    return (0 if from_zero and low == 0 else low - margin), high + margin


def with_common_scale(panels):
    """Panels of the same quantity show it on the same scale."""
    groups = {}
    for panel in panels:
        groups.setdefault((panel.y_label, panel.y_scale), []).append(panel)
    limits = {key: (log_limits if key[1] == "log" else linear_limits)(group)
              for key, group in groups.items()}
    return [replace(panel, limits=limits[panel.y_label, panel.y_scale]) for panel in panels]


def of_run(experiment, rows):
    """The panels of one run; those without a value are left out."""
    return with_common_scale([panel for panel in experiment.panels(rows) if panel.drawn])


def aligned(series, before, after):
    """Its values at the places of another panel's x."""
    at = {x: i for i, x in enumerate(before)}

    def moved(values):
        return None if values is None else [values[at[x]] if x in at else None for x in after]

    return replace(series, values=moved(series.values), low=moved(series.low),
                   high=moved(series.high))


def merged_x(panels):
    xs = list(dict.fromkeys(x for panel in panels for x in panel.x))
    return xs if any(isinstance(x, str) for x in xs) else sorted(xs)


def overlaid(experiment, runs):
    """Each panel once, with the curves of all runs [(name, rows)].

    The paper's curves and predicted ones are there once.
    """
    by_title = {}
    for number, (name, rows) in enumerate(runs):
        for panel in experiment.panels(rows):
            by_title.setdefault(panel.title, []).append((number, name, panel))
    found = []
    for of_title in by_title.values():
        xs = merged_x([panel for _, _, panel in of_title])
        series, papers = [], {}
        for number, name, panel in of_title:
            for each in panel.series:
                moved = aligned(each, panel.x, xs)
                if not each.is_measured:
                    papers.setdefault(each.name, moved)
                elif not each.is_empty:
                    series.append(replace(moved, name=f"{each.name}, {name}", run=number,
                                          hue=each.hue or each.name))
        hues = list(dict.fromkeys(each.hue for each in series))
        series.sort(key=lambda each: (hues.index(each.hue), each.run))
        panel = replace(of_title[-1][2], x=xs, series=[*series, *papers.values()])
        if panel.drawn:
            found.append(panel)
    return with_common_scale(found)


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cut_off(panel):
    """Ends of error bars beyond the scale."""
    if panel.limits is None:
        return []
    low, high = panel.limits
    return [end for series in panel.drawn for _, *bar in bars_of(series) for end in bar
            if end < low or end > high]


def notes(panel):
    """What the drawing leaves out, in sentences."""
    said = [f"{panel.note[0].upper()}{panel.note[1:]}: this shows the scheduler, and nothing of as many cores."
            ] if panel.note else []
    if ends := cut_off(panel):
        furthest = [number(end) for end, is_out in ((min(ends), min(ends) < panel.limits[0]),
                                                    (max(ends), max(ends) > panel.limits[1])) if is_out]
        said.append(f"Error bars cut off at the arrows: {len(ends)}, reaching {' and '.join(furthest)}.")
    if empty := [series.name for series in panel.series if series.is_empty]:
        said.append(f"No value: {', '.join(empty)}.")
    return " ".join(said)
