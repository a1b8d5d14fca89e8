#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs in the manner of real ones over heddle, and what their messages were: which way they
went, how many were sent from buffers that are used often, how often buffers were used, what was
registered. Prints Markdown, or JSON. MPI's own shared memory is off, so all messages are heddle's.

jacobi, cg, lu, adi, lattice and fft of this folder on PyPI's MPICH (or --mpi), and there mpi4py's own benchmarks;
multigrid (hypre) and LAMMPS's melt on the distribution's Open MPI, which Debian builds them with. What
cannot be had here is listed with the reason. Ends with status 1 if a program fails or its answer is
wrong. The numbers are those of `heddle run --stats-file`, summed over all processes. Standard library
only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [*(str(HERE.parents[1] / "tests" / each) for each in ("mpi", "third_party")), str(HERE)]
import jobs  # noqa: E402
import mpis  # noqa: E402
from harness import Program  # noqa: E402
from turns import SEEN_BY_REUSE  # noqa: E402

FLAGS = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra"]
HYPRE = "/usr/include/hypre"
DEBIAN = "openmpi-debian"
PATIENCE = 600  # seconds, of a program
# The usual Lennard-Jones liquid: what cools as it leaves its lattice keeps its energy.
MELT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo {shown}
run {steps}
"""


class Unavailable(Exception):
    """A program that cannot be had here; the text says why."""


def ready(found, why, key, make, folder):
    """The MPI of that key and the program's command for it. found, why: what mpis.find() gives. Raises
    Unavailable."""
    if key not in found:
        raise Unavailable(why[key])
    return found[key], make(found[key], folder)


def own(name, *arguments):
    """A program of this folder: of its name, and what has its name before an underscore."""

    def make(mpi, folder):
        binary = folder / f"{name}.{mpi.key}"
        sources = [HERE / f"{name}.c", *sorted(HERE.glob(f"{name}_*.c"))]
        more = [f"-I{HYPRE}", "-lHYPRE"] if name == "multigrid" else []
        if more and not Path(HYPRE, "HYPRE.h").exists():
            raise Unavailable("no hypre (Debian: libhypre-dev)")
        done = subprocess.run([mpi.mpicc, *FLAGS, "-o", binary, *sources, *more, "-lm"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"cannot be built: {done.stderr.strip()[-300:]}")
        return [binary, *arguments]

    return make


def lammps(steps):
    def make(mpi, folder):
        program = mpi.home / "bin" / "lmp"
        if not os.access(program, os.X_OK):
            raise Unavailable("no LAMMPS (Debian: lammps)")
        (folder / "in.melt").write_text(MELT.format(steps=steps, shown=steps // 5), encoding="ascii")
        return [program, "-in", "in.melt", "-log", "none"]

    return make


def python(*words):
    def make(mpi, _):
        missing = subprocess.run([mpi.python, "-c", "import mpi4py.bench"], capture_output=True,
                                 check=False).returncode
        if missing:
            raise Unavailable(f"no mpi4py in {mpi.home}")
        return [mpi.python, "-m", "mpi4py.bench", *words]

    return make


def said(pattern, times=1):
    """The last line of this pattern, which must be there so often; else None."""

    def look(text, _):
        found = [line[0].strip() for line in re.finditer(f"^.*{pattern}.*$", text, re.M)]
        return found[-1] if len(found) >= times else None

    return look


def energy_kept(text, _):
    """Compares the first and the last of LAMMPS's six lines: the total energy of an atom stays."""
    lines = [line.split() for line in re.findall(r"^ +\d+(?: +[-\d.e+]+){5} *$", text, re.M)]
    if len(lines) != 6 or int(lines[-1][0]) != 5 * int(lines[1][0]):
        return None
    first, last = (float(line[4]) for line in (lines[0], lines[-1]))
    return f"energy {first} to {last}" if abs(last - first) < 0.01 * abs(first) else None


def greeted(text, ranks):
    numbers = set(re.findall(rf"I am process +(\d+) of {ranks}", text))
    return f"{ranks} ranks said hello" if len(numbers) == ranks else None


# Name: which MPI (None: that of --mpi), its command, what it says when it is right.
PROGRAMS = {
    **{name: (None, own(name), said(rf"{name}: .*: correct")) for name in ("jacobi", "cg", "lu", "adi", "lattice", "fft")},
    "multigrid": (DEBIAN, own("multigrid"), said("multigrid: .*: correct")),
    "LAMMPS melt": (DEBIAN, lammps(250), energy_kept),
    "mpi4py helloworld": (None, python("helloworld"), greeted),
    "mpi4py ringtest": (None, python("ringtest", "-n", "4096", "-s", "10", "-l", "500"),
                        said("500 loops")),
    "mpi4py pingpong": (None, python("pingpong", "-n", "65536", "-l", "1000", "--loop-large", "200"),
                        said(r"^ *65536 ")),
}


@dataclass
class Outcome:
    """How a program ended, and the sums of what its processes counted."""

    name: str
    mpi: str
    status: str
    proof: str | None
    processes: int = 0
    counts: dict = field(default_factory=dict)

    @property
    def good(self):
        return self.status == "0" and self.proof is not None and self.processes > 0

    def __getitem__(self, key):
        return self.counts.get(key, 0)


def add_up(path):
    """Lines of JSON, a process each: numbers and lists of them are added."""
    processes, counts = 0, {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        processes += 1
        for key, value in json.loads(line).items():
            if isinstance(value, list):
                before = counts.get(key, [0] * len(value))
                counts[key] = [a + b for a, b in zip(before, value)]
            elif isinstance(value, int):
                counts[key] = counts.get(key, 0) + value
    return processes, counts


def run(options, name, mpi, argv, proof, folder, reuse):
    counted = folder / "stats.json"
    counted.unlink(missing_ok=True)
    marker = uuid.uuid4().hex
    environment = {**os.environ, jobs.MARKER: marker, "OMP_NUM_THREADS": "1", **SEEN_BY_REUSE,
                   "FI_HEDDLE_REUSE": reuse, **dict(each.split("=", 1) for each in options.set)}
    if mpi.distributed:
        environment["OMPI_MCA_btl"] = "self"  # as mpis.py says; heddle run lets it be
    job = Program([options.heddle, "run", "--within-node", "heddle", "--stats-file", counted, "--",
                   *mpi.mpiexec(options.ranks), *argv], environment=environment, directory=folder)
    try:
        ended = job.wait(PATIENCE)
        stacks = "" if ended else jobs.where(marker)
    finally:
        jobs.end(job, marker)
    text = job.output()
    outcome = Outcome(name, mpi.name, str(job.code) if ended else "hangs", proof(text, options.ranks),
                      *add_up(counted))
    if not outcome.good:
        print(f"programs: {name}, reuse {reuse}: {job.describe(40)}\n{stacks}", file=sys.stderr)
    return outcome


# Tables


def share(part, whole):
    return f"{100 * part / whole:.1f}" if whole else "-"


def table(heads, rows):
    cells = [[str(each) for each in row] for row in (heads, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]

    def line(row):
        first = f"| {row[0]:{widths[0]}} |"
        return first + "".join(f" {text:>{width}} |" for text, width in zip(row[1:], widths[1:]))

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (width + 1)}:|" for width in widths[1:])
    print("\n".join([line(cells[0]), rule, *map(line, cells[1:])]) + "\n")


def details(outcome):
    """Tables 1 and 3 of the reuse paper for one program."""
    print(f"#### {outcome.name} ({outcome.mpi}, {outcome.processes} processes)\n")
    print(f"Exit status {outcome.status}. {outcome.proof or 'Its answer is not there or wrong'}.\n")
    sizes = [(1 << i, copied, direct) for i, (copied, direct) in
             enumerate(zip(outcome["copied_by_size"] or [], outcome["gathered_by_size"] or []))]
    rows = [(size, copied, direct, share(direct, copied + direct))
            for size, copied, direct in sizes if copied + direct]
    if rows:
        table(("bytes, up to", "copied", "not copied", "% not copied"), rows)
    uses = [(str(1 << i - 1) if i == 1 else f"{1 << i - 1} to {(1 << i) - 1}", count)
            for i, count in enumerate(outcome["buffers_by_uses"] or []) if i and count]
    if uses:
        table(("uses (lately)", "buffers"), uses)


def summary(outcomes):
    paths, kept = [], []
    for each in outcomes:
        copied, direct = (sum(each[key] or []) for key in ("copied_by_size", "gathered_by_size"))
        eager = each["inlined"] + copied + direct
        paths.append((each.name, "yes" if each.good else "NO", each["inlined"], copied, direct,
                      each["rendezvous"], share(direct, copied + direct),
                      share(direct, eager + each["rendezvous"]), each["unexpected"], each["rma"]))
        kept.append((each.name, each["reuse_uses"], each["reuse_frequent"], each["reuse_registered"],
                     each["reuse_gone"], each["reuse_aged"], each["registrations"],
                     each["registration_hits"], each["registration_evictions"],
                     each["registration_invalidations"]))
    table(("program", "correct", "inline", "copied", "not copied", "rendezvous", "% of eager not copied",
           "% of all", "unexpected", "RMA"), paths)
    table(("program", "looked up", "of registered", "small registered", "gone", "aged", "registrations",
           "hits", "evictions", "invalidations"), kept)


def report(options, outcomes, missing):
    for reuse, each in outcomes.items():
        chosen = ", ".join([f"FI_HEDDLE_REUSE={reuse}", *options.set])
        print(f"### {chosen}, {options.ranks} ranks\n")
        summary(each)
        for outcome in each:
            details(outcome)
    for name, reason in missing.items():
        print(f"{name}: not run: {reason}\n")


def lines(options, outcomes, missing):
    for reuse, each in outcomes.items():
        for one in each:
            print(json.dumps({"experiment": "programs", "program": one.name, "missing": None,
                              "mpi": one.mpi, "ranks": options.ranks, "reuse": reuse,
                              "good": one.good, "proof": one.proof, "counts": one.counts}))
    for name, reason in missing.items():
        print(json.dumps({"experiment": "programs", "program": name, "missing": str(reason)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", type=Path, required=True, help="the command")
    parser.add_argument("--venvs", type=Path,
                        help="folder of the MPIs, which are installed there (default: build/venvs)")
    parser.add_argument("--hardware", action="store_true",
                        help="nothing, as `heddle run` finds the device; other scripts have it")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), default="mpich",
                        help="of this folder's programs and mpi4py (default mpich)")
    parser.add_argument("--ranks", type=int, default=4, help="(default 4)")
    parser.add_argument("--reuse", action="append", help="FI_HEDDLE_REUSE (default auto); repeatable")
    parser.add_argument("--set", metavar="VARIABLE=VALUE", action="append", default=[],
                        help="for all programs, such as FI_HEDDLE_RINGS=8")
    parser.add_argument("--only", default="", help="programs whose name matches")
    parser.add_argument("--json", action="store_true",
                        help="a line of JSON for each program, also for what is not to be had")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    venvs = options.venvs or options.heddle.parent.parent / "venvs"
    found, why = mpis.find([options.mpi, DEBIAN], venvs.resolve(), for_python=True,
                           say=lambda text: print(f"programs: {text}", file=sys.stderr))
    outcomes, missing = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (key, make, proof) in PROGRAMS.items():
            if not re.search(options.only, name):
                continue
            try:
                mpi, argv = ready(found, why, key or options.mpi, make, Path(folder))
            except Unavailable as reason:
                missing[name] = reason
                continue
            for reuse in options.reuse or ["auto"]:
                print(f"programs: {name}, reuse {reuse}", file=sys.stderr, flush=True)
                outcomes.setdefault(reuse, []).append(
                    run(options, name, mpi, argv, proof, Path(folder), reuse))
    if options.json:
        lines(options, outcomes, missing)
    else:
        report(options, outcomes, missing)
    return 0 if all(one.good for each in outcomes.values() for one in each) else 1


if __name__ == "__main__":
    sys.exit(main())
