# SPDX-License-Identifier: BSD-2-Clause
"""Panels as SVG. matplotlib draws; its colours are then made variables of the page, so that one drawing
serves light and dark. Each curve has a marker and a dash of its own, too: colour is never all that tells
two apart. The paper's values are always grey squares on a dotted line, or hatched bars."""

import hashlib
import io
import re

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

# Stand-ins; page.css gives each its colours. The first eight are of curves.
CURVES = [f"#0102{number:02x}" for number in range(1, 9)]
PAPER, INK, GRID, BAND = "#010301", "#010302", "#010303", "#010304"
VARIABLES = {**{color: f"var(--curve-{number})" for number, color in enumerate(CURVES, 1)},
             PAPER: "var(--paper)", INK: "var(--ink)", GRID: "var(--grid)", BAND: "var(--mark)"}
MARKERS = ("o", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", (0, (6, 2)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1.5)), "-", (0, (6, 2)),
          (0, (4, 1.5, 1, 1.5)), (0, (2, 1.5)))
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


def color_of(panel, series):
    """By its place among those that are not the paper's."""
    own = [each for each in panel.series if not each.paper]
    return PAPER if series.paper else CURVES[own.index(series) % len(CURVES)]


def draw_lines(axes, panel):
    own = 0
    for series in panel.series:
        color = color_of(panel, series)
        there = [i for i, value in enumerate(series.values) if value is not None]
        xs, ys = [panel.x[i] for i in there], [series.values[i] for i in there]
        if series.paper:
            axes.plot(xs, ys, color=color, marker="s", markersize=4, linewidth=1.3,
                      linestyle=(0, (1, 1.5)), label="paper", zorder=2)
            continue
        axes.plot(xs, ys, color=color, marker=MARKERS[own % len(MARKERS)], markersize=4.5,
                  linewidth=1.6, linestyle=DASHES[own % len(DASHES)], label=series.name, zorder=3)
        if series.low is not None and series.high is not None:
            for i in there:
                if series.low[i] is not None and series.high[i] is not None:
                    axes.vlines(panel.x[i], series.low[i], series.high[i], color=color,
                                linewidth=1, alpha=0.6, zorder=1)
        own += 1
    if panel.x_scale == "log2":
        axes.set_xscale("log", base=2)
    elif panel.x_scale == "log10":
        axes.set_xscale("log")
    if panel.x_scale == "log2" and len(panel.x) <= 7:
        axes.set_xticks(panel.x)
    axes.xaxis.set_major_formatter(number_text)
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def draw_bars(axes, panel):
    width = 0.8 / max(len(panel.series), 1)
    for at, series in enumerate(panel.series):
        color = color_of(panel, series)
        xs = [place - 0.4 + (at + 0.5) * width for place in range(len(panel.x))]
        known = [i for i, value in enumerate(series.values) if value is not None]
        axes.bar([xs[i] for i in known], [series.values[i] for i in known], width * 0.92, label=series.name, zorder=3,
                 **({"facecolor": "none", "edgecolor": color, "hatch": "////"} if series.paper else
                    {"color": color}))
        if series.low is not None and series.high is not None:
            there = [i for i in known if None not in (series.low[i], series.high[i])]
            axes.vlines([xs[i] for i in there], [series.low[i] for i in there],
                        [series.high[i] for i in there], color=INK, linewidth=1, zorder=4)
    axes.set_xticks(range(len(panel.x)), panel.x, rotation=28, ha="right", fontsize=8.5)


def draw(panel, small=False):
    """An Axes' worth of SVG text, as matplotlib writes it. small: a thumbnail without words."""
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(2.2, 1.1) if small else (WIDTH, HEIGHT))
        try:
            (draw_bars if panel.is_bars else draw_lines)(axes, panel)
            if panel.y_scale == "log":
                axes.set_yscale("log")
                low, high = axes.get_ylim()
                axes.yaxis.set_major_locator(ticker.LogLocator(
                    subs=(1, 2, 5) if high / low < 50 else (1,), numticks=12))
                axes.yaxis.set_major_formatter(number_text)
                axes.yaxis.set_minor_locator(ticker.NullLocator())
            elif panel.y_from_zero:
                axes.set_ylim(bottom=0)
            for value, text in panel.marks:
                axes.axhline(value, color=BAND, linewidth=1, zorder=1)
                if text and not small:
                    axes.annotate(text, (1, value), xycoords=("axes fraction", "data"),
                                  xytext=(3, 0), textcoords="offset points", va="center",
                                  fontsize=8.5)
            axes.grid(True, axis="y", color=GRID, linewidth=0.6, zorder=0)
            if small:
                axes.tick_params(labelbottom=False, labelleft=False, length=0)
            else:
                axes.set_title(panel.title, loc="left")
                axes.set_xlabel(panel.x_label)
                axes.set_ylabel(panel.y_label)
                if len(panel.series) > 1:
                    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.36 if panel.is_bars
                                                                    else -0.2),
                                ncols=min(len(panel.series), 4), columnspacing=1.2,
                                handlelength=2.6)
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
