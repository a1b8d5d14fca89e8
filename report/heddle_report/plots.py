# SPDX-License-Identifier: BSD-2-Clause
"""Panels as SVG. matplotlib draws; its colours are then made variables of the page, so that one drawing
serves light and dark. Each curve has a marker and a dash of its own, too: colour is never all that tells
two apart. The paper's values are always squares on a dotted line, grey or in the colour of the curve they
belong to, or hatched bars. Predicted values are crosses without a line, or bars hatched crosswise."""

import hashlib
import io
import os
import re

# Matrices are of 3 x 3 here, and OpenBLAS's threads spin while they wait for larger ones: half of the
# processor time. It reads this when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import matplotlib  # noqa: E402

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

from .panels import bars_of  # noqa: E402

# Stand-ins; page.css gives each its colours. The first eight are of curves.
CURVES = [f"#0102{number:02x}" for number in range(1, 9)]
PAPER, INK, GRID, BAND = "#010301", "#010302", "#010303", "#010304"
VARIABLES = {**{color: f"var(--curve-{number})" for number, color in enumerate(CURVES, 1)},
             PAPER: "var(--paper)", INK: "var(--ink)", GRID: "var(--grid)", BAND: "var(--mark)"}
MARKERS = ("o", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", (0, (6, 2)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1.5)), "-", (0, (6, 2)),
          (0, (4, 1.5, 1, 1.5)), (0, (2, 1.5)))
RUN_DASHES = ("-", (0, (3, 1.3)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))  # from the last run back
WIDTH, HEIGHT = 4.6, 3.1  # inches of 72 points; the page scales
STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "text.color": INK,
         "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": INK, "ytick.color": INK,
         "axes.titlesize": 10.5, "axes.spines.top": False, "axes.spines.right": False,
         "legend.frameon": False, "legend.fontsize": 8.5, "hatch.color": INK, "hatch.linewidth": 0.6}


def number_text(value, _=None):
    """As axes show numbers: 65536 is 64Ki, 0.0001 is 0.0001."""
    if value >= 1024 and value % 1024 == 0:
        for unit, size in (("Mi", 1 << 20), ("Ki", 1 << 10)):
            if value % size == 0:
                return f"{value / size:g}{unit}"
    if value >= 10000:
        return f"{value / 1000:g}k" if value < 1e6 else f"{value / 1e6:g}M"
    return f"{value:g}"


def hue_of(series):
    return series.hue or series.name


def place_of(panel, series):
    """The number of its hue, among those that have something measured."""
    hues = list(dict.fromkeys(hue_of(each) for each in panel.series if each.is_measured))
    return hues.index(hue_of(series)) if hue_of(series) in hues else None


def color_of(panel, series):
    place = place_of(panel, series)
    return PAPER if place is None else CURVES[place % len(CURVES)]


def draw_cut_off(axes, panel, x, ends, color):
    """Arrows where error bars go beyond the scale."""
    if panel.limits is None:
        return
    for end, edge, marker in ((ends[0], panel.limits[0], "v"), (ends[1], panel.limits[1], "^")):
        if (marker == "v" and end < edge) or (marker == "^" and end > edge):
            axes.plot([x], [edge], color=color, marker=marker, markersize=5, linestyle="none",
                      clip_on=False, zorder=5)


def line_style(panel, series):
    """Colour and marker tell curves apart; the dash does, too, or tells the runs apart: the last is
    drawn through and filled. The paper's points are squares on dots."""
    place, last = place_of(panel, series), max(each.run for each in panel.series)
    if series.predicted:
        return {"marker": "x", "markersize": 6, "markeredgewidth": 1.4, "linestyle": "none", "zorder": 4}
    if series.paper:
        return {"marker": "s", "markersize": 4, "linewidth": 1.3, "linestyle": (0, (1, 1.5)), "zorder": 2,
                "markerfacecolor": "none" if place is not None else PAPER}
    style = {"marker": MARKERS[place % len(MARKERS)], "markersize": 4.5, "linewidth": 1.6,
             "linestyle": DASHES[place % len(DASHES)], "zorder": 3}
    if last:
        style["linestyle"] = RUN_DASHES[(last - series.run) % len(RUN_DASHES)]
        if series.run != last:
            style["markerfacecolor"] = "none"
    return style


def draw_lines(axes, panel):
    papers_named = set()
    for series in panel.drawn:
        color = color_of(panel, series)
        there = [i for i, value in enumerate(series.values) if value is not None]
        xs, ys = [panel.x[i] for i in there], [series.values[i] for i in there]
        name = series.name
        if not series.is_measured:  # of several curves with the paper's beside, one entry for these is enough
            name = (series.name.split(":")[0] if series.predicted else
                    "paper" if color == PAPER else "paper (dotted)")
            name = "_" + name if name in papers_named else name
            papers_named.add(name)
        axes.plot(xs, ys, color=color, label=name, **line_style(panel, series))
        for i, low, high in bars_of(series):
            axes.vlines(panel.x[i], low, high, color=color, linewidth=1, alpha=0.6, zorder=1)
            draw_cut_off(axes, panel, panel.x[i], (low, high), color)
    if panel.x_scale == "log2":
        axes.set_xscale("log", base=2)
    elif panel.x_scale == "log10":
        axes.set_xscale("log")
    if panel.x_scale == "log2" and len(panel.x) <= 7:
        axes.set_xticks(panel.x)
    axes.xaxis.set_major_formatter(number_text)
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def draw_bars(axes, panel):
    width = 0.8 / max(len(panel.drawn), 1)
    last = max(each.run for each in panel.series)
    for at, series in enumerate(panel.drawn):
        color = color_of(panel, series)
        xs = [place - 0.4 + (at + 0.5) * width for place in range(len(panel.x))]
        known = [i for i, value in enumerate(series.values) if value is not None]
        axes.bar([xs[i] for i in known], [series.values[i] for i in known], width * 0.92, label=series.name, zorder=3,
                 **({"facecolor": "none", "edgecolor": color, "hatch": "xxx" if series.predicted else "////"}
                    if not series.is_measured else
                    {"color": color, "alpha": 1 if series.run == last else 0.5}))
        for i, low, high in bars_of(series):
            axes.vlines(xs[i], low, high, color=INK, linewidth=1, zorder=4)
            draw_cut_off(axes, panel, xs[i], (low, high), INK)
    axes.set_xticks(range(len(panel.x)), panel.x, rotation=28, ha="right", fontsize=8.5)


def draw_note(axes, panel, small):
    """What must be known of the values is in the drawing itself, and the part that it holds for is shaded."""
    if not panel.note:
        return
    low, high = axes.get_xlim()
    if panel.shaded_above is None:
        axes.axvspan(low, high, color=BAND, alpha=0.15, linewidth=0, zorder=0)
    elif panel.shaded_above < high:
        axes.axvspan(panel.shaded_above, high, color=BAND, alpha=0.15, linewidth=0, zorder=0)
    axes.set_xlim(low, high)
    if not small:
        axes.annotate(panel.note, (0, 1), xycoords="axes fraction", xytext=(4, -4), textcoords="offset points",
                      va="top", fontsize=8)


def draw_legend(axes, panel):
    names = axes.get_legend_handles_labels()[1]
    if len(names) < 2:
        return
    longest = max(map(len, names))
    columns = 4 if longest < 12 else 3 if longest < 20 else 2 if longest < 34 else 1
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36 if panel.is_bars else -0.2),
                ncols=min(len(names), columns), columnspacing=1.2, handlelength=2.6)


def draw(panel, small=False):
    """An Axes' worth of SVG text, as matplotlib writes it. small: a thumbnail without words."""
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(2.2, 1.1) if small else (WIDTH, HEIGHT))
        try:
            (draw_bars if panel.is_bars else draw_lines)(axes, panel)
            if panel.y_scale == "log":
                axes.set_yscale("log")
            if panel.limits is not None:
                axes.set_ylim(*panel.limits)
            if panel.y_scale == "log":
                low, high = axes.get_ylim()
                axes.yaxis.set_major_locator(ticker.LogLocator(
                    subs=(1, 2, 5) if high / low < 50 else (1,), numticks=12))
                axes.yaxis.set_major_formatter(number_text)
                axes.yaxis.set_minor_locator(ticker.NullLocator())
            elif panel.y_from_zero and panel.limits is None:
                axes.set_ylim(bottom=0)
            for value, text in panel.marks:
                axes.axhline(value, color=BAND, linewidth=1, zorder=1)
                if text and not small:
                    axes.annotate(text, (1, value), xycoords=("axes fraction", "data"),
                                  xytext=(3, 0), textcoords="offset points", va="center",
                                  fontsize=8.5)
            draw_note(axes, panel, small)
            axes.grid(True, axis="y", color=GRID, linewidth=0.6, zorder=0)
            if small:
                axes.tick_params(labelbottom=False, labelleft=False, length=0)
            else:
                axes.set_title(panel.title, loc="left")
                axes.set_xlabel(panel.x_label)
                axes.set_ylabel(panel.y_label)
                draw_legend(axes, panel)
            to = io.StringIO()
            figure.savefig(to, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.04,
                           metadata={"Date": None})
            return to.getvalue()
        finally:
            pyplot.close(figure)


def svg(panel, description, small=False):
    """To stand in a page: colours are its variables, ids are the drawing's own."""
    text = draw(panel, small)
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    prefix = "p" + hashlib.sha256((description + text).encode()).hexdigest()[:10] + "-"
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    text = re.sub(r'url\(#([^)]+)\)', rf'url(#{prefix}\1)', text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{prefix}\1"', text)
    text = re.sub(r'<svg [^>]*viewBox="([^"]+)"[^>]*>',
                  lambda found: f'<svg viewBox="{found[1]}" role="img" aria-label="'
                  f'{escape(description)}">', text, count=1)
    for color, variable in VARIABLES.items():
        text = text.replace(color, variable)
    return text


def escape(text):
    return (str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            .replace('"', "&quot;"))
