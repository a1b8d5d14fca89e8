# SPDX-License-Identifier: BSD-2-Clause
"""`heddle report --markdown`: what the page says, as a document for docs/reference/results. It is made of
the same verdicts, so that both say the same. Without matplotlib."""

import re
import textwrap

from . import catalogue, findings, judged, runs, samples

WIDTH = 100
NOTHING = """Nothing is measured here yet. On a machine with nothing else to do, this writes the page:

    heddle reproduce --full --out run
    heddle report --markdown run --out docs/reference/results/papers.md
"""
OF_PAPERS = ("Each experiment of the papers, what it gave, and whether that is as in the paper. `heddle report` shows the "
             "same with plots.")
BESIDE_PEERS = ("Heddle beside other software for the same work, in every operation and size: so many times as fast, or as "
                "small. `heddle report` shows the same with plots.")


def plain(text):
    """As words of Markdown, not its signs, but for what is between backticks: code."""
    parts = re.split(r"(`[^`|]+`)", str(text))  # a bar would end a table's cell, in code, too
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\|*_<`])", r"\\\1", parts[at])
    return "".join(parts)


def paragraph(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head, rows, words):
    """words: so many columns at the left are text."""
    lines = ["| " + " | ".join(map(plain, head)) + " |",
             "|" + "|".join("---" if at < words else "---:" for at in range(len(head))) + "|"]
    lines += ["| " + " | ".join(map(plain, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def overview(run, experiments):
    """Two tables: what the papers found, and our own experiments."""
    found = [row.cells(", ".join(each.key for each in row.experiments)) for row in findings.rows(run, experiments)]
    own = [[each.title, each.key, runs.state_text(each, run.state_of(each)[0])]
           for each in findings.others(experiments)]
    parts = []
    if found:
        parts += ["### What the papers found\n", table(findings.HEAD, found, len(findings.HEAD))]
    if peers := run.judged(experiments):
        parts += beside_peers(peers)
    if own:
        parts += ["### What the papers do not have\n", table(("experiment", "key", "verdict"), own, 3)]
    return "\n".join(parts)


def beside_peers(by_title):
    rows = [row for each in by_title.values() for row in each]
    parts = ["### Beside the peers\n", "<!-- prose: off -->\n", paragraph(f"{judged.count(rows)}."), table(judged.HEAD, judged.standing(rows), 1)]
    if behind := judged.behind_table(by_title):
        parts += ["Behind:\n", table(judged.HEAD_BEHIND, behind, 3)]
    return [*parts, "<!-- prose: on -->\n"]


def section(experiment, run, said):
    """said: criteria and differences -> the title of the experiment that has them; those that come are added."""
    def once(what, words):
        first = said.setdefault((what, words), experiment.title)
        return paragraph(f"*{what}.* " + plain(words if first == experiment.title else f'As of "{first}".'))

    state, text = run.state_of(experiment)
    where = f" ({experiment.where})" if experiment.where else ""
    parts = [f"### {experiment.title}{where}\n", paragraph(plain(experiment.question)),
             # The lists of a verdict may be long; scripts/check-prose leaves them alone.
             "<!-- prose: off -->\n",
             paragraph(f"**{runs.state_text(experiment, state).capitalize()}.** {plain(text)}"),
             "<!-- prose: on -->\n",
             once("How it is judged", experiment.criterion),
             once("What is compared" if experiment.paper == "peers" else "Differences in set-up",
                  experiment.differences)]
    outcome = run.outcomes[experiment.key]
    if run.is_done(experiment):
        parts += ["".join(f"    {' '.join(experiment_words(words))}\n" for words in outcome.commands),
                  paragraph(f"In {plain(experiment.unit)}."),
                  table(*runs.points_rows(experiment, outcome), len(experiment.columns))]
    return "\n".join(parts)


def experiment_words(words):
    """A command without the folders of this machine."""
    return [word.rpartition("/")[2] if word.startswith("/") else word for word in words]


def document(run, experiments):
    only_peers = all(each.paper == "peers" for each in experiments)
    parts = ["<!-- Written by `heddle report --markdown`. -->\n",
             "# Results: beside the peers\n" if only_peers else "# Results: the papers' experiments\n",
             paragraph(BESIDE_PEERS if only_peers else OF_PAPERS),
             paragraph(plain(runs.facts_line(run.facts)) + ".") if any(map(run.is_done, experiments)) else NOTHING]
    if run.facts.get("software_hca"):
        parts.append(paragraph(runs.SOFTWARE_HCA))
    parts += ["## Overview\n", overview(run, experiments)]
    said = {}
    for paper, (name, source) in catalogue.PAPERS.items():
        mine = [each for each in experiments if each.paper == paper]
        if mine:
            parts += [f"## {name}\n", paragraph(plain(source) + "."), *(section(each, run, said) for each in mine)]
    return "\n".join(parts)


def write(folder, to, experiments):
    """Throws samples.Broken where the folder is no run."""
    samples.write(to, document(runs.Run(folder, experiments), experiments))
