#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a message costs between MPICH and the device, by operation: over heddle, posting directly and by verbs, and over
rc_mlx5 and rc_verbs of each UCX. Prints a line of JSON for each operation, side and way, or tables.

Instructions of the libraries beneath MPI, by callgrind, each library apart: without MPI itself, the C library and
the software HCA. The data references, and the cache lines: those that a call touches when it begins with a cold
cache. What the device counts of it: doorbells, its reads and its writes by DMA. instruction_table.c takes one step
at a time, so no call waits. Standard library only.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import step_profiles
from transports import NO_CACHE
from turns import HERE, RANKS, UCX, Job, mpis, over_heddle, over_ucx, parser_of

SENDER, RECEIVER = "sender", "receiver"
SIDES = (SENDER, RECEIVER)  # by rank
HEDDLE = ("direct", "verbs")
RANK = "PMI_RANK"  # where MPICH tells a process its rank
WARM_UP = 24  # of instruction_table.c
CHUNK = 16  # messages; then both ranks progress, so that neither runs out of credits
PCIE = ("mmio_writes", "dma_reads", "dma_writes", "cqe_bytes")
# Large copies by the C library, which is not counted, as heddle's are; rendezvous of the messages that heddle sends
# by it.
UCX_CHOICES = {"UCX_BUILTIN_MEMCPY_MIN": "inf", "UCX_RNDV_THRESH": "32768", "UCX_LOG_LEVEL": "diag"}
CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=262144,16,64", "--LL=8388608,16,64")


@dataclass(frozen=True)
class Row:
    """An operation of instruction_table.c. `job`: rows of one job."""

    name: str
    title: str
    job: str = "messages"


ROWS = (
    Row("idle", "poll that finds nothing"),
    Row("pingpong", "8 B, MPI_Send and MPI_Recv of a ping-pong"),
    Row("send", "8 B, MPI_Send to a posted receive"),
    Row("irecv", "8 B, MPI_Irecv before its message"),
    Row("completion", "8 B, MPI_Test that finds the message"),
    Row("early", "8 B, progress that takes a message before its receive"),
    Row("early_receive", "8 B, MPI_Recv that finds this message"),
    Row("eager64", "64 B, MPI_Isend or MPI_Irecv, and MPI_Test"),
    Row("eager1024", "1 KiB, the same"),
    Row("eager8192", "8 KiB, the same"),
    Row("rget", "64 KiB, the same, read by the receiver"),
    Row("rput", "64 KiB, the same, written by the sender", "rput"),
    Row("put", "8 B, MPI_Put and MPI_Win_flush", "window"),
    Row("get", "8 B, MPI_Get and MPI_Win_flush", "window"),
    Row("fetch", "8 B, MPI_Fetch_and_op and MPI_Win_flush", "window"),
)


class DistributedMpich(mpis.Mpi):
    """The distribution's, which has UCX alone beneath it (Debian 12: MPICH 4.0.2 on UCX 1.13.1)."""

    @property
    def mpicc(self):
        return self.home / "bin" / "mpicc.mpich"

    def mpiexec(self, ranks):
        return [str(self.home / "bin" / "mpiexec.mpich"), "-launcher", "fork", "-n", str(ranks)]


@dataclass(frozen=True)
class Way:
    """What carries an MPI's messages. `ucx`: the folder of UCX libraries that take the place of the MPI's own."""

    key: str
    mpi: mpis.Mpi
    ucx: Path | None = None

    def environment(self, options, job):
        if self.key in HEDDLE:
            # Whether looking for buffers that are used again pays is measured: then counts would go by the clock.
            return {**over_heddle(self.mpi, options.heddle.parent.parent / "lib"), "FI_HEDDLE_POST": self.key,
                    "FI_HEDDLE_REUSE": "off", "FI_HEDDLE_RNDV": "rput" if job == "rput" else "rget"}
        found = {**over_ucx(self.mpi, self.key), **UCX_CHOICES,
                 "UCX_RNDV_SCHEME": "put_zcopy" if job == "rput" else "get_zcopy"}
        if self.ucx:
            found["LD_LIBRARY_PATH"] = str(self.ucx)
        return found

    @property
    def program(self):
        """The name of this MPI's instruction_table."""
        return f"instruction_table.{self.mpi.home.name}"


def version_of(library):
    """The version of this libucp.so.0, or None if there is none."""
    text = ("import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); "
            "library.ucp_get_version_string.restype = ctypes.c_char_p; "
            "print(library.ucp_get_version_string().decode())")
    return subprocess.run([sys.executable, "-c", text, library], check=False, capture_output=True,
                          text=True).stdout.strip() or None


def ucx_ways(options, mpi):
    """Version of a UCX -> the MPI that it is beneath, and the folder of its libraries if they are not that MPI's
    own: the distribution's, the one that comes with the MPI, and those of --ucx-lib."""
    found = {}
    distributed = DistributedMpich("mpich", Path("/usr"), "mpich")
    if distributed.mpicc.exists() and Path(distributed.mpiexec(1)[0]).exists():
        found[version_of("libucp.so.0")] = (distributed, None)
    found[version_of(mpi.home / "lib" / "mpich" / "libucp.so.0")] = (mpi, None)
    for folder in options.ucx_lib:
        found[version_of(folder / "libucp.so.0")] = (mpi, folder.resolve())
    found.pop(None, None)
    return found


def bytes_of_cqes(stat, pid):
    return sum(cq["cqe_bytes"] * cq["counters"]["dma_write_cqe"] for cq in stat["cqs"] if cq["pid"] == pid)


def pcie_of(stat, process):
    """What a process's device has done on its PCIe bus, from the counters of `softhca stat --json`."""
    counters = process["counters"]
    rung = counters["doorbells"] + counters["blueflame"]
    seen = rung > 0
    return {
        # UCX writes each WQE into a BlueFlame register, which the software HCA cannot see: it then reads the WQE,
        # as an adapter does not.
        "mmio_writes": rung if seen else counters["wqes"],
        "dma_reads": counters["dma_read_wqe"] + counters["dma_read_payload"] - (0 if seen else counters["wqes"]),
        "dma_writes": counters["dma_write_payload"] + counters["dma_write_cqe"],
        "cqe_bytes": bytes_of_cqes(stat, process["pid"]),
    }


class Run:
    """One MPI job below callgrind: some rows, over one way."""

    def __init__(self, options, way, job, rows, folder):
        self.options, self.rows = options, rows
        self.fabric = f"table-{os.getpid()}"
        self.chunks = max(1, options.messages // CHUNK)
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        for rank in range(RANKS):
            os.mkfifo(self.folder / f"sent.{rank}")
        binary = folder / way.program
        if not binary.exists():
            subprocess.run([way.mpi.mpicc, "-std=gnu11", "-O2", "-g", "-o", binary, HERE / "instruction_table.c"],
                           check=True)
        # UCX patches functions of the C library for its registration cache: hence --smc-check.
        valgrind = ["valgrind", "--tool=callgrind", "-q", "--fair-sched=yes", "--smc-check=all", *CACHES, "--instr-atstart=no",
                    "--toggle-collect=counted", "--dump-instr=yes", "--compress-pos=no",
                    f"--callgrind-out-file={self.folder}/profile.%q{{{RANK}}}"]
        # The device executes what is posted before the call goes on, so the number of polls is always the same.
        device = [] if options.hardware else [self.softhca(), "run", "--fabric", self.fabric, "--engine", "inline",
                                              "--"]
        self.job = Job("job", [*device, *way.mpi.mpiexec(RANKS), *valgrind, binary, self.folder, CHUNK, self.chunks,
                               *(row.name for row in rows)], way.environment(options, job), self.folder)

    def softhca(self):
        return self.options.heddle.with_name("softhca")

    def device(self):
        """For each rank, what the device has counted."""
        if self.options.hardware:
            return None
        shown = subprocess.run([self.softhca(), "stat", "--fabric", self.fabric, "--json"], capture_output=True,
                               text=True, check=True)
        stat = json.loads(shown.stdout)
        found = {}
        for process in stat["processes"]:
            environment = Path(f"/proc/{process['pid']}/environ").read_bytes().decode(errors="replace").split("\0")
            ranks = [int(each.partition("=")[2]) for each in environment if each.startswith(f"{RANK}=")]
            if ranks:
                found[ranks[0]] = pcie_of(stat, process)
        return [found[rank] for rank in range(RANKS)]

    def results(self):
        """(row name, side) -> its counts of a message."""
        pcie = {}
        before = None
        for row in self.rows:
            self.job.turn()
            after = self.device()
            if before and after:
                sent = WARM_UP + CHUNK * self.chunks
                pcie[row.name] = [{name: round((after[rank][name] - before[rank][name]) / sent, 2) for name in PCIE}
                                  for rank in range(RANKS)]
            before = after
        self.job.results()
        if NO_CACHE.search(self.job.text()):
            sys.exit("instruction_table: UCX has no registration cache here")
        self.job.close()
        found = {}
        for rank, side in enumerate(SIDES):
            profiles = step_profiles.read(self.folder, rank)
            for row in self.rows:
                counts = step_profiles.row_of(profiles, row.name, CHUNK)
                if counts:
                    found[row.name, side] = {**counts, **(pcie[row.name][rank] if row.name in pcie else {})}
        shutil.rmtree(self.folder)
        return found


def count(options, way, folder):
    """(row name, side) -> counts, of all jobs."""
    found = {}
    for job in dict.fromkeys(row.job for row in ROWS):
        # Each job counts polls that find nothing, which are subtracted; and what makes connections comes first.
        rows = [ROWS[0], *(row for row in ROWS[1:] if row.job == job and row.name in options.row)]
        if len(rows) > 1:
            found.update({key: value for key, value in Run(options, way, job, rows, folder).results().items()
                          if job == ROWS[0].job or key[0] != ROWS[0].name})
    return found


def ways_of(options, mpi):
    """title -> way."""
    found = {f"heddle {key}": Way(key, mpi) for key in HEDDLE if key in options.way}
    if not set(UCX).isdisjoint(options.way):
        for version, (beneath, folder) in ucx_ways(options, mpi).items():
            found.update({f"UCX {version} {key}": Way(key, beneath, folder) for key in UCX if key in options.way})
    return found


def by_library(result):
    """For instance: ucp 641, uct 196, mlx5 460."""
    found = {}
    for library, count in result["by_library"].items():
        name = re.match(r"lib(uc[pts]|ucm|[a-z0-9]+)", library)[1]
        found[name] = found.get(name, 0) + count
    return ", ".join(f"{name} {count:.0f}" for name, count in found.items())


def pcie(result):
    """For instance: 1, 0, 0.02, 2."""
    if PCIE[0] not in result:
        return "-"
    return ", ".join(f"{result[name]:.0f}" if result[name] >= 10 else f"{result[name]:g}" for name in PCIE)


# What a table shows -> one of its cells.
TABLES = {
    "Instructions": lambda result: f"{result['instructions']:.0f}",
    "Instructions, by library": by_library,
    "Data cache lines, data references": lambda result: f"{result['lines']:.0f}, {result['references']:.0f}",
    "MMIO writes, DMA reads, DMA writes, bytes of CQEs": pcie,
}


def print_tables(results):
    """`results`: what is printed as JSON."""
    titles = list(dict.fromkeys(result["title"] for result in results))
    found = {(result["title"], result["row"], result["side"]): result for result in results}
    for name, cell in TABLES.items():
        print(f"\n{name}\n\n| operation | side | {' | '.join(titles)} |")
        print(f"|---|---|{'---:|' * len(titles)}")
        for row in ROWS:
            for side in SIDES:
                of_row = [found.get((title, row.name, side)) for title in titles]
                if any(of_row):
                    print(f"| {row.title} | {side} | "
                          f"{' | '.join(cell(result) if result else '-' for result in of_row)} |")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--way", choices=(*HEDDLE, *UCX), action="append", help="may be repeated (default: all)")
    parser.add_argument("--row", choices=[row.name for row in ROWS[1:]], action="append",
                        help="may be repeated (default: all)")
    parser.add_argument("--messages", type=int, default=192, help="of each row (default 192)")
    parser.add_argument("--ucx-lib", type=Path, action="append", default=[], metavar="FOLDER",
                        help="with libucp.so.0 of another UCX; may be repeated")
    parser.add_argument("--table", action="store_true", help="a table instead of JSON")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    options.way = options.way or [*HEDDLE, *UCX]
    options.row = options.row or [row.name for row in ROWS]
    if shutil.which("valgrind") is None:
        sys.exit("instruction_table: valgrind is not installed")
    venvs = (options.venvs or options.heddle.parent.parent / "venvs").resolve()
    found, missing = mpis.find(["mpich"], venvs, say=lambda text: print(text, file=sys.stderr))
    if missing:
        sys.exit(f"instruction_table: {missing['mpich']}")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for title, way in ways_of(options, found["mpich"]).items():
            for (row, side), counts in count(options, way, Path(folder)).items():
                results.append({"experiment": "mpi-instructions", "way": way.key, "title": title, "row": row,
                                "side": side, **counts})
                if not options.table:
                    print(json.dumps(results[-1]), flush=True)
    if options.table:
        print_tables(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
