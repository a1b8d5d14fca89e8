# SPDX-License-Identifier: BSD-2-Clause
"""`heddle reproduce` and `heddle report`; the command `heddle` starts this with its own path."""

import argparse
import datetime
import importlib.util
import os
import sys
from pathlib import Path

from . import catalogue, hosts, judged, markdown, runner, runs, samples

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def parse(arguments):
    parser = argparse.ArgumentParser(prog="heddle", description="The papers' experiments.")
    parser.add_argument("--heddle", type=Path, default=Path("heddle"), help=argparse.SUPPRESS)
    parser.add_argument("--libexec", type=Path, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    reproduce = commands.add_parser(
        "reproduce", help="run the papers' experiments and write the report",
        description="Runs every experiment of the papers that this machine can run, then writes "
        "DIR/report.html. What is in DIR already is not run again: after an interruption, the same "
        "command goes on.")
    length = reproduce.add_mutually_exclusive_group()
    length.add_argument("--quick", dest="mode", action="store_const", const="quick",
                        help="few repetitions: shapes (default)")
    length.add_argument("--full", dest="mode", action="store_const", const="full",
                        help="as many as a figure to be quoted wants")
    reproduce.add_argument("--only", action="append", metavar="PAPER", default=[],
                           help=f"{', '.join(catalogue.PAPERS)}, or one experiment (see --list); "
                           "may be repeated")
    reproduce.add_argument("--out", type=Path, metavar="DIR",
                           help="where to (default: heddle-DATE below the working directory)")
    reproduce.add_argument("--no-page", dest="page", action="store_false",
                           help="only measure, without matplotlib; `heddle report DIR` makes the "
                           "page")
    reproduce.add_argument("--hosts", type=Path, metavar="FILE",
                           help="a host a line: what runs as a job of mpiexec is started on these, one process after "
                           "the other; --out and $TMPDIR have to be folders that all of them see")
    reproduce.add_argument("--runs", type=at_least_one, default=1, metavar="N",
                           help="repeat each experiment of the peers so often (default 1): a row is better or behind "
                           "only if each run says so")
    reproduce.add_argument("--list", action="store_true", help="which experiments there are")
    for program in catalogue.outside_programs():
        users = [each.key for each in catalogue.all_experiments() if each.outside == program]
        reproduce.add_argument(f"--{program.option}", type=Path, metavar="FOLDER",
                               help=f"the source of {program.name} ({program.where}), for {', '.join(users)}")
    reproduce.set_defaults(mode="quick")

    report = commands.add_parser(
        "report", help="one page of one run, or several beside each other",
        description="Writes a page of what `heddle reproduce` has measured. Several folders are "
        "compared: before and after, this machine and that one.")
    report.add_argument("runs", nargs="+", type=Path, metavar="DIR")
    report.add_argument("--markdown", action="store_true",
                        help="of one run, as a document of Markdown: the same verdicts and values, without "
                        "plots and matplotlib")
    report.add_argument("--only", action="append", metavar="PAPER", default=[],
                        help="these experiments alone, as in `heddle reproduce`; may be repeated")
    report.add_argument("--out", type=Path, metavar="FILE",
                        help="default: report.html in the last DIR, comparison.html if there are "
                        "several, report.md with --markdown")
    options = parser.parse_args(arguments)
    if options.command == "report" and options.markdown and len(options.runs) > 1:
        parser.error("--markdown is of one run")
    options.experiments = chosen(parser, options.only)
    if options.command == "reproduce":
        options.sources = sources(parser, options)
    return options


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def chosen(parser, only):
    experiments = catalogue.all_experiments()
    known = {*catalogue.PAPERS, *(each.key for each in experiments)}
    for name in only:
        if name not in known:
            parser.exit(USAGE, f"heddle: --only {name}: there is no such paper or "
                        f"experiment; papers are {', '.join(catalogue.PAPERS)}, and `heddle "
                        "reproduce --list` shows the experiments\n")
    return [each for each in experiments
            if not only or each.paper in only or each.key in only]


def sources(parser, options):
    """Where programs of others are, by their option."""
    found = {}
    for program in catalogue.outside_programs():
        folder = getattr(options, program.option)
        if folder is not None and not folder.is_dir():
            parser.exit(USAGE, f"heddle reproduce: --{program.option} {folder}: there is no such folder; it is the "
                        f"source of {program.name} ({program.where})\n")
        if folder is not None:
            found[program.option] = folder.resolve()
    return found


def list_them(options):
    width = max(len(each.key) for each in options.experiments)
    for each in options.experiments:
        quick, full = (runner.duration(each.seconds[mode]) for mode in ("quick", "full"))
        where = f" ({each.where})" if each.where else ""
        print(f"{each.key:{width}}  {quick:>7} {full:>12}  {each.title}{where}")
    quick, full = (runner.duration(sum(each.seconds[mode] for each in options.experiments))
                   for mode in ("quick", "full"))
    print(f"\n{'all':{width}}  {quick:>7} {full:>12}  --quick and --full, on 2 processors")


def with_matplotlib():
    """Goes on in the distribution's Python if only that one has matplotlib."""
    usual = "/usr/bin/python3"
    if importlib.util.find_spec("matplotlib") is None and os.access(usual, os.X_OK) and \
            os.path.realpath(sys.executable) != os.path.realpath(usual):
        sys.stdout.flush()
        os.execv(usual, [usual, *sys.orig_argv[1:]])


def page_module(otherwise):
    try:
        from . import page  # needs matplotlib, which a run does not
    except ModuleNotFoundError as error:
        raise samples.Broken(f"the page needs Python's {error.name} (Debian and Ubuntu: "
                             f"python3-{error.name}); {otherwise}") from None
    return page


def write_report(folders, to, experiments):
    page_module(f"what was measured stays in {folders[0]}").write(folders, to, experiments)
    print(to)


def reproduce(options):
    if options.list:
        list_them(options)
        return 0
    folder = options.out or Path(f"heddle-{datetime.date.today().isoformat()}")
    tools = runner.Tools(options.heddle, options.libexec, options.sources,
                         hosts.Hosts(options.hosts) if options.hosts else None)
    if why := tools.why_none():
        print(f"heddle reproduce: {why}", file=sys.stderr)
        return FAILED
    if options.page:  # before the hours that are in vain without it
        page_module("--no-page measures without it, and `heddle report` makes the page later")
    print(f"On {'the software HCA' if tools.is_software else 'the RDMA device'}, into {folder}; "
          f"{len(options.experiments)} experiments, {options.mode}", file=sys.stderr)
    try:
        ended = runner.run(tools, options.experiments, options.mode, folder, options.runs)
    except runner.Interrupted as error:
        print(f"\nheddle reproduce: {error}. What was finished is in {folder}; the same command "
              f"with --out {folder} goes on.", file=sys.stderr)
        return INTERRUPTED
    if options.page:
        write_report([folder], folder / "report.html", catalogue.all_experiments())
    if rows := [row for each in runs.Run(folder, options.experiments).judged(options.experiments).values()
                for row in each]:
        print(f"Beside the peers {judged.count(rows)}.")
    failed = [key for key, outcome in ended.items() if outcome.status == "failed"]
    if failed:
        print(f"heddle reproduce: failed: {', '.join(failed)}; the report says why",
              file=sys.stderr)
    return FAILED if failed else 0


def report(options):
    if options.markdown:
        to = options.out or options.runs[0] / "report.md"
        markdown.write(options.runs[0], to, options.experiments)
        print(to)
        return 0
    to = options.out or options.runs[-1] / ("report.html" if len(options.runs) == 1
                                            else "comparison.html")
    write_report(options.runs, to, options.experiments)
    return 0


def main(arguments=None):
    options = parse(arguments)
    if arguments is None and not getattr(options, "markdown", False):
        with_matplotlib()
    try:
        return (reproduce if options.command == "reproduce" else report)(options)
    except samples.Broken as error:
        print(f"heddle {options.command}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"heddle {options.command}: {error.filename}: {error.strerror}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
