#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A program of others, whose source the user names, by each rendezvous protocol (FI_HEDDLE_RNDV), in rounds.
Sandia's SMB: of each side and size the time of a message, the overhead and the availability, as it prints
them. Benchmarks of NASA's NPB: the seconds that each says it took, after its own test of the answer. With
--vary reuse they run without the reuse of buffers and with it, as applications.py does it, and with --vary peer over
heddle and over UCX's rc_verbs. All are
built in a scratch folder; their source is only read. `heddle reproduce --help` says where it is found.
Ends with status 77 if there is no MPI or compiler for it. Standard library only.

    bench/mpi/outside.py --heddle build/bin/heddle --smb SMB
    bench/mpi/outside.py --heddle build/bin/heddle --npb NPB3.4 --benchmark sp --class B --rounds 5
    bench/mpi/outside.py --heddle build/bin/heddle --npb NPB3.4 --benchmark cg lu --vary reuse
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import phases
from programs import DEBIAN, Unavailable
from rndv_modes import NOT_HERE, WAYS, in_rounds, print_lines, print_table
from turns import RANKS, by_rendezvous, mpis, over_heddle, parser_of

SIDES = {"sender": [], "receiver": ["--recv"]}
PROTOCOLS = ("rget", "rput", "tupleq", "auto")
SIZES = (8, 1024, 8192, 65536, 1 << 20)
COLUMNS = ["msgsize", "iterations", "iter_t", "work_t", "overhead", "base_t", "avail(%)"]
KNEE = 1.5  # times the base time: SMB's --thresh
Broken = phases.Broken  # also a program that cannot be built


def within(folder, name, what):
    """The path `name` in the folder, or up to two folders below it."""
    for depth in ("", "*/", "*/*/"):
        for path in sorted(folder.glob(depth + name)):
            return path
    raise Broken(f"{what} is not in {folder}: there is no {name}, nor two folders below it")


def built(words, what, **options):
    done = subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **options)
    if done.returncode != 0:
        raise Broken(f"{done.stdout[-1000:]}{done.stderr[-1000:]}\n{what} cannot be built: `{words[0]}` ended "
                     f"with status {done.returncode}")


# Sandia's SMB.

def smb(mpi, source, folder):
    """Its program mpi_overhead. Its work is a loop whose results nobody needs: with the -O2 of its Makefile GCC 12
    leaves the loop out. So it is not optimized. It is C of 1989, which compilers of today take as an older one."""
    program = folder / "mpi_overhead"
    built([mpi.mpicc, "-std=gnu11", "-O0", "-w", "-o", program,
           within(source, "mpi_overhead/mpi_overhead.c", "SMB")], "SMB's mpi_overhead")
    return program


def smb_values(text, size):
    """What it prints of a message: its columns by name. Raises Broken."""
    lines = [line.split() for line in text.splitlines()]
    for head, words in zip(lines, lines[1:]):
        if head != COLUMNS or len(words) != len(COLUMNS):
            continue
        try:
            values = dict(zip(COLUMNS, map(float, words)))
        except ValueError:
            continue
        if values["msgsize"] != size:
            raise Broken(f"it measured {values['msgsize']:g} B instead of {size} B")
        if values["base_t"] <= 0:
            raise Broken("its messages took no time")
        if values["iter_t"] < 0.99 * KNEE * values["base_t"]:  # it ends beyond the knee only
            raise Broken("its work took no time: the compiler has left it out")
        return values
    raise Broken("it printed no values")


def smb_once(options, mpi, program, side, size, way):
    device = [] if options.hardware else [options.heddle.with_name("softhca"), "run", "--"]
    words = [*device, *mpi.mpiexec(RANKS), program, "--msgsize", size, "--thresh", KNEE, *SIDES[side],
             *(["--iterations", options.iterations] if options.iterations else [])]
    environment = {**over_heddle(mpi, options.heddle.parent.parent / "lib"), **by_rendezvous(way)}
    try:
        done = subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=options.patience, env={**os.environ, **environment})
        if done.returncode != 0:
            raise Broken(f"{done.stdout[-1000:]}{done.stderr[-1000:]}\nit ended with status {done.returncode}")
        return smb_values(done.stdout, size)
    except subprocess.TimeoutExpired:
        raise Broken(f"it took more than {options.patience:g} s") from None


def run_smb(options, mpi, program):
    """(side, bytes, protocol) -> what each round gave."""
    found = {(side, size, way): [] for side in SIDES for size in options.bytes for way in PROTOCOLS}
    for number in range(options.rounds):
        for key in found if number % 2 == 0 else reversed(found):
            side, size, way = key
            try:
                found[key].append(smb_once(options, mpi, program, *key))
            except Broken as reason:
                raise Broken(f"{reason} (SMB, {side}, {size} B by {way})") from None
    return found


def smb_lines(mpi, found):
    for (side, size, way), rounds in found.items():
        print(json.dumps({"experiment": "smb", "program": "mpi_overhead", "mpi": mpi.name, "ranks": RANKS,
                          "cores": len(os.sched_getaffinity(0)), "way": way, "side": side, "bytes": size,
                          "base_us": [each["base_t"] for each in rounds],
                          "overhead_us": [each["overhead"] for each in rounds],
                          "available": [each["avail(%)"] for each in rounds]}), flush=True)


def smb_tables(options, mpi, found):
    print(f"SMB, {mpi.name}: base, overhead in us, availability in %; medians of {options.rounds} rounds\n")
    for side in SIDES:
        print(f"| {side}, bytes | {' | '.join(PROTOCOLS)} |\n|---:|{'---:|' * len(PROTOCOLS)}")
        for size in options.bytes:
            cells = [", ".join(f"{statistics.median(each[column] for each in found[side, size, way]):.{digits}f}"
                               for column, digits in (("base_t", 2), ("overhead", 2), ("avail(%)", 0)))
                     for way in PROTOCOLS]
            print(f"| {size} | {' | '.join(cells)} |")
        print()


# NASA's NPB.

def npb(mpi, source, folder, benchmark, letter, ranks):
    """The benchmark of NPB for MPI, of this class. Versions before 3.4 are built for a number of ranks."""
    fortran = mpi.mpifort
    if not os.access(fortran, os.X_OK) or subprocess.run([fortran, "--version"], capture_output=True,
                                                         check=False).returncode:
        raise Unavailable(f"no Fortran for {mpi.name} (Debian: gfortran)")
    tree = within(source, "MPI_dummy", "NPB for MPI").parent  # NPB's other versions have no such folder
    copy = folder / benchmark
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("*.o", "*.mod", ".git"))
    config = copy / "config"
    shutil.copy(config / "make.def.template", config / "make.def")
    (copy / "bin").mkdir(exist_ok=True)
    for old in (copy / "bin").iterdir():
        old.unlink()
    # Since version 10 gfortran takes for errors that calls give MPI scalars and arrays in turn, and X'FF'.
    flags = "-O3 -fallow-argument-mismatch -fallow-invalid-boz"
    compilers = {"MPIFC": fortran, "MPIF77": fortran, "MPICC": mpi.mpicc, "FLINK": fortran, "CLINK": mpi.mpicc,
                 "CC": "cc", "FMPI_LIB": "", "FMPI_INC": "", "CMPI_LIB": "", "CMPI_INC": "", "FFLAGS": flags,
                 "CFLAGS": "-O3", "FLINKFLAGS": "-O3", "CLINKFLAGS": "-O3"}
    built(["make", benchmark, f"CLASS={letter}", f"NPROCS={ranks}",
           *(f"{name}={value}" for name, value in compilers.items())], f"NPB's {benchmark}.{letter}", cwd=copy)
    return next((copy / "bin").glob(f"{benchmark}.{letter}.*"))


def measure_npb(options, mpi, benchmark, source, scratch):
    """The status."""
    name = f"{benchmark}.{options.letter}"
    program = npb(mpi, source, scratch, benchmark, options.letter, options.ranks)
    if options.vary in ("reuse", "peer"):
        return phases.measure(options, mpi, f"{options.vary}-npb", name, [program], scratch)
    taken = in_rounds(options, mpi, [program], scratch)
    if taken is None:
        return 1
    if options.json:
        print_lines(name, mpi, options.ranks, taken)
    else:
        print_table(options, name, mpi, taken)
    return 0


def measure(options, mpi, source, scratch):
    """The status."""
    if options.smb:
        seen = run_smb(options, mpi, smb(mpi, source, scratch))
        if options.json:
            smb_lines(mpi, seen)
        else:
            smb_tables(options, mpi, seen)
        return 0
    return max(measure_npb(options, mpi, each, source, scratch) for each in options.benchmark)


def main():
    parser = parser_of(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--smb", type=Path, metavar="FOLDER", help="the source of SMB")
    source.add_argument("--npb", type=Path, metavar="FOLDER", help="the source of NPB")
    parser.add_argument("--mpi", choices=mpis.KEYS,
                        help=f"(default: mpich for SMB, {DEBIAN} for NPB; wheels have no Fortran)")
    parser.add_argument("--rounds", type=int, default=3, help="(default 3)")
    parser.add_argument("--patience", type=float, default=3600, metavar="SECONDS", help="of a run")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES), help="of SMB's messages")
    parser.add_argument("--iterations", type=int, help="of SMB (default: its own, 1000 or 100)")
    parser.add_argument("--benchmark", nargs="+", default=["sp"], help="of NPB (default sp)")
    parser.add_argument("--class", dest="letter", default="A", help="of NPB's problem (default A)")
    parser.add_argument("--ranks", type=int, default=4, help="of NPB (default 4); sp wants a square number")
    parser.add_argument("--vary", choices=WAYS, default="rndv", help="of NPB: what its runs differ in")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    folder = options.smb or options.npb
    key = options.mpi or ("mpich" if options.smb else DEBIAN)
    venvs = options.venvs or options.heddle.parent.parent / "venvs"
    found, why = mpis.find([key], venvs.resolve(), say=lambda text: print(text, file=sys.stderr))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            if key not in found:
                raise Unavailable(why[key])
            return measure(options, found[key], folder.resolve(), Path(scratch))
        except Unavailable as reason:
            print(f"outside.py: {reason}", file=sys.stderr)
            return NOT_HERE
        except Broken as reason:
            print(reason, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
