# SPDX-License-Identifier: BSD-2-Clause
"""One HTML file that needs nothing else: an overview, then each experiment with its plots, its table, how
it was obtained, how its set-up differs from the paper's, and its samples. Several runs are drawn over each
other, and a table compares them. Printed, it is a document: whatever is folded on a screen is printed."""

import base64
import re
from pathlib import Path

from . import catalogue, findings, judged, panels, samples
from .plots import escape, svg
from .runs import Run, adapter, facts_line, points_rows, state_text, value_text

# For browsers whose style sheets cannot unfold <details> on paper.
UNFOLD = """
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open], .missing)")];
  folded.forEach(each => { each.open = true; });
});
addEventListener("afterprint", () => folded.forEach(each => { each.open = false; }));
"""


def prose(text):
    """Sentences; what is between backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def table(head, rows, words=1):
    """words: so many columns at the left are text."""
    def cells(tag, row):
        return "".join(f"<{tag}{' class=words' if at < words else ''}>{escape(cell)}</{tag}>"
                       for at, cell in enumerate(row))
    return ("<div class=wide tabindex=0 role=region aria-label=\"Table of values\"><table><thead><tr>"
            f"{cells('th', head)}</tr></thead><tbody>"
            + "".join(f"<tr>{cells('td', row)}</tr>" for row in rows) + "</tbody></table></div>")


def points_table(experiment, outcome):
    return (f"<p class=soft>In {escape(experiment.unit)}.</p>"
            + table(*points_rows(experiment, outcome), len(experiment.columns)))


def comparison(experiment, runs):
    """The values of two runs or more beside each other, each as a multiple of the first's, too."""
    each_run = [{point.key: point for point in experiment.points(run.outcomes[experiment.key].rows)}
                for run in runs]
    keys = [key for key in each_run[0]
            if all(key in points and points[key].value is not None for points in each_run)]
    if not keys:
        return "<p>These runs have no value in common.</p>"
    head = [*experiment.columns[:len(keys[0])], *(run.name for run in runs),
            *(f"{run.name} / {runs[0].name}" for run in runs[1:])]
    rows = []
    for key in keys:
        values = [points[key].value for points in each_run]
        ratios = [value_text(value / values[0]) if values[0] else "–" for value in values[1:]]
        rows.append([*map(str, key), *map(value_text, values), *ratios])
    better = "more" if experiment.more_is_better else "less"
    return (f"<p class=soft>In {escape(experiment.unit)}; {better} is better.</p>"
            + table(head, rows, len(experiment.columns)))


def command_text(outcome):
    return "\n".join(" ".join(words) for words in outcome.commands)


def environment(facts, outcome):
    row = outcome.rows[0]
    host = row["host"] if isinstance(row.get("host"), dict) else row
    libraries = ", ".join(filter(None, (host.get("libibverbs"), host.get("libmlx5"))))
    fields = {"host": facts.get("host"), "processor": f"{facts.get('processor')}, "
              f"{facts.get('processors')} usable", "kernel": facts.get("kernel"),
              "device": adapter(facts), "UAR kernel": row.get("uar_kernel"),
              "versions": ", ".join(filter(None, (facts.get("heddle"), libraries))),
              "begun": outcome.started, "took": f"{outcome.seconds:.0f} s ({outcome.mode})"}
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
                            for name, value in fields.items() if value) + "</dl>"


def download(outcome, run):
    data = base64.b64encode(outcome.raw).decode()
    return (f'<p class=download><a download="{outcome.key}-{escape(run.name)}.jsonl" href="data:application/x-ndjson;'
            f'base64,{data}">All samples ({len(outcome.raw) / 1024:.0f} KiB, JSON lines)</a></p>')


def figures(experiment, runs):
    """The figures of one run, or of several runs drawn over each other."""
    rows = [(run.name, run.outcomes[experiment.key].rows) for run in runs]
    drawn = (panels.overlaid(experiment, rows) if len(rows) > 1 else
             panels.of_run(experiment, rows[0][1]))
    parts = []
    for panel in drawn:
        curves = ", ".join(series.name for series in panel.drawn)
        by = f" by {panel.x_label}" if panel.x_label else ""
        description = f"{experiment.title}, {panel.title}: {panel.y_label}{by}; {curves}"
        note = panels.notes(panel)
        parts.append(f"<figure>{svg(panel, description)}"
                     + (f"<figcaption>{escape(note)}</figcaption>" if note else "") + "</figure>")
    return "<div class=panels>" + "".join(parts) + "</div>" if parts else "<p>There is no value to draw.</p>"


def how(experiment, run):
    outcome = run.outcomes[experiment.key]
    return (f"<details><summary>How it was obtained{of(run)}</summary>"
            f"<pre tabindex=0>{escape(command_text(outcome))}</pre>"
            f"{environment(run.facts, outcome)}{download(outcome, run)}</details>")


def of(run):
    return f" – {escape(run.name)}" if run.has_others else ""


def section(experiment, runs):
    parts = [f'<section id="{experiment.key}"><h3>{escape(experiment.title)} '
             f'<span class=soft>{escape(experiment.where)}</span></h3>'
             f"<p>{prose(experiment.question)}</p>"]
    done = []
    for run in runs:
        state, text = run.state_of(experiment)
        parts.append(f'<p><span class="state {state}">{escape(state_text(experiment, state))}{of(run)}.</span> '
                     f"{prose(text)}</p>")
        outcome = run.outcomes[experiment.key]
        if outcome is None or outcome.status != "done":
            if outcome is not None and outcome.commands:
                parts.append(f"<pre tabindex=0>{escape(command_text(outcome))}</pre>")
            continue
        done.append(run)
    if done:
        parts.append(figures(experiment, done))
    if len(done) > 1:
        parts.append(f"<details open><summary>The runs beside each other</summary>"
                     f"{comparison(experiment, done)}</details>")
    about = "What is compared" if experiment.paper == "peers" else "Differences in set-up"
    parts.append(f"<p><strong>How it is judged:</strong> {prose(experiment.criterion)}</p>"
                 f"<p><strong>{about}:</strong> {prose(experiment.differences)}</p>")
    for run in done:
        values = points_table(experiment, run.outcomes[experiment.key])
        parts.append(f"<details><summary>All values{of(run)}</summary>{values}</details>"
                     f"{how(experiment, run)}")
    return "".join(parts) + "</section>"


def card(experiment, run):
    state, text = run.state_of(experiment)
    picture = ""
    outcome = run.outcomes[experiment.key]
    if outcome is not None and outcome.status == "done":
        drawn = panels.of_run(experiment, outcome.rows)
        if drawn:
            picture = svg(drawn[0], f"{experiment.title}, in small", small=True)
    return (f'<li><a href="#{experiment.key}"><span class=name>{escape(experiment.title)}</span>'
            f'<span class="soft where">{escape(experiment.where)}</span>{picture}<span class=verdict>'
            f'<span class="state {state}">{escape(state_text(experiment, state))}.</span> '
            f"{prose(text)}</span></a></li>")


def findings_table(run, experiments):
    """What the papers found, each with its verdict; names of experiments lead to their sections."""
    found = findings.rows(run, experiments)
    if not found:
        return ""
    at = findings.HEAD.index("experiments")
    lines = []
    for row in found:
        links = ", ".join(f'<a href="#{each.key}">{each.key}</a>' for each in row.experiments)
        cells = row.cells(links)  # links are HTML, the others text
        lines.append("<tr>" + "".join(f"<td>{cell if place == at else escape(cell)}</td>"
                                      for place, cell in enumerate(cells)) + "</tr>")
    return ("<h2>What the papers found</h2><div class=\"wide findings\" tabindex=0 role=region "
            "aria-label=\"What the papers found\"><table><thead><tr>"
            + "".join(f"<th>{cell}</th>" for cell in findings.HEAD)
            + f"</tr></thead><tbody>{''.join(lines)}</tbody></table></div>")


def peers_table(run, experiments):
    """How heddle stands beside each peer, by all rows, and those that are behind."""
    by_title = run.judged(experiments)
    rows = [row for each in by_title.values() for row in each]
    if not rows:
        return ""
    behind = judged.behind_table(by_title)
    return (f"<h2>Beside the peers</h2><p>{escape(judged.count(rows))}.</p>"
            + table(judged.HEAD, judged.standing(rows))
            + (f"<p>Behind:</p>{table(judged.HEAD_BEHIND, behind, 3)}" if behind else ""))


def heading(runs):
    facts = runs[-1].facts
    lines = [f"<p class=soft>{escape(run.name)}: {escape(facts_line(run.facts))}</p>" for run in runs]
    if any(run.facts.get("software_hca") for run in runs):
        lines.append("<p class=notice>Measured on a <strong>software HCA</strong>: locks, cache lines, "
                     "copies and system calls of this machine, and no rates of an adapter. What the "
                     "papers have measured stands beside in a colour of its own; shapes compare, "
                     "numbers do not.</p>")
    title = "Heddle beside the papers" if len(runs) == 1 else "Heddle: runs beside each other"
    return f"<header><h1>{title}</h1>{''.join(lines)}</header>", title, facts


def html(runs, experiments):
    for run in runs:
        run.has_others = len(runs) > 1
    head, title, _ = heading(runs)
    body = [head, "<main>"]
    shown = [each for each in experiments if any(run.outcomes[each.key] for run in runs)]
    missing = [each for each in experiments if each not in shown]
    body.append(findings_table(runs[-1], shown))
    body.append(peers_table(runs[-1], shown))
    for paper, (name, source) in catalogue.PAPERS.items():
        mine = [each for each in shown if each.paper == paper]
        if mine:
            body.append(f"<h2>{escape(name)}</h2><p class=soft>{escape(source)}</p>"
                        f"<ul class=overview>{''.join(card(each, runs[-1]) for each in mine)}</ul>")
    body += [section(each, runs) for each in shown]
    if missing:
        names = ", ".join(f"{each.title} ({each.key})" for each in missing)
        body.append(f"<details class=missing><summary>Not run: {len(missing)} of {len(experiments)} "
                    f"experiments</summary><p>Not asked for: {escape(names)}.</p></details>")
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return ('<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport '
            f'content="width=device-width, initial-scale=1"><script>{UNFOLD}</script><title>{escape(title)}</title><style>'
            f"\n{css}</style></head><body>{''.join(body)}</main><footer>Medians; bars are from the lower "
            "to the upper quartile. Every value comes from the samples that can be downloaded here."
            "</footer></body></html>\n")


def write(folders, to, experiments):
    """Throws samples.Broken where a folder is no run."""
    runs = [Run(folder, experiments) for folder in folders]
    samples.write(Path(to), html(runs, experiments))
