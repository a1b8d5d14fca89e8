# SPDX-License-Identifier: BSD-2-Clause
"""`heddle reproduce` and `heddle report`: the experiments of the papers, run, kept and shown.

model.py        what an experiment is, and what it shows
judged.py       rows that are judged one by one: heddle beside each peer
values.py       medians, quartiles and intervals of what was measured
experiments/    the experiments, a file a paper; outside.py: those by programs of others
catalogue.py    the papers, and a list of all experiments
findings.py     what the papers found, and which experiments reproduce it
hosts.py        --hosts: on which hosts mpiexec starts their processes
runner.py       runs them, one after the other; what is there already is not run again
samples.py      the folder that a run leaves behind, and what may be wrong with it
plots.py        panels as SVG whose colours are the page's
likeness.py     whether curves are like a paper's
runs.py         a run in the words of the page and of the document
markdown.py     the document: the same verdicts and values, without plots
page.py         one HTML file of one run or several
"""
