# SPDX-License-Identifier: BSD-2-Clause
"""Each figure, table and headline number of the papers that has data, and the experiments that reproduce it. The
overview of the page and of the document is made of these, so that nothing of a paper can be left out unseen.
Where only drawings or text of a paper are at hand, `differs` says so."""

from dataclasses import dataclass

from . import catalogue, runs


@dataclass(frozen=True)
class Finding:
    paper: str  # a key of catalogue.PAPERS
    where: str  # in the paper
    what: str  # it shows, with its number
    by: tuple  # keys of the experiments that reproduce it; none: `differs` says why
    differs: str  # here, in a few words


ONE_HOST = "both processes are on one host; a software HCA's threads share its cores"
FEWER_CORES = "shapes by sharing need as many cores as threads"
OWN_PATHS = "heddle's two paths; the paper's pair is UCX's, see below"

FINDINGS = (
    Finding("endpoints", "Fig. 2b", "16 threads of one process send 17.5 million messages/s, 16 processes 142.5",
            ("endpoints-2b",), ONE_HOST),
    Finding("endpoints", "Fig. 3", "With 16 threads, 142.5 falls to 68.7 without inlining and to 113.4 without "
            "Postlist", ("endpoints-3",), ONE_HOST),
    Finding("endpoints", "Fig. 5", "Threads that share a buffer lose where payload is not inline: 69.6 to 18.5",
            ("endpoints-5",), FEWER_CORES),
    Finding("endpoints", "Fig. 6", "Payloads on cache lines of their own; what the device reads (6b)",
            ("endpoints-6",), "the paper's values are not at hand; reads are the software HCA's"),
    Finding("endpoints", "Fig. 7", "A shared context: without Postlist 111.5 to 95.3, and 62.6 where two threads "
            "share a register", ("endpoints-7",), FEWER_CORES),
    Finding("endpoints", "Fig. 8", "Shared protection domains (8a) and memory regions (8b) cost nothing",
            ("endpoints-8a", "endpoints-8b"), "one set of the paper's values for both parts"),
    Finding("endpoints", "Fig. 9", "A shared CQ: 142.4 to 73.5, and to 7.8 if each request is signaled",
            ("endpoints-9",), FEWER_CORES),
    Finding("endpoints", "Fig. 10", "A shared CQ by the share of signaled requests, with Postlist (10a) and "
            "without (10b)", ("endpoints-10",), FEWER_CORES),
    Finding("endpoints", "Fig. 11", "A shared queue pair", ("endpoints-11",), FEWER_CORES),
    Finding("endpoints", "Fig. 12", "Global array by category: rates, and the resources taken",
            ("endpoints-12",), "smaller matrices; the product is checked"),
    Finding("endpoints", "Figs. 13 and 14", "Stencil by category and by processes and threads: rates, and the "
            "resources taken", ("endpoints-14",), "two processes stand for two nodes; threads wait for halos"),
    Finding("endpoints", "Table I", "Bytes of a context 256 K, PD 144, MR 144, QP 80 K, CQ 9 K",
            ("endpoints-resources",), "today's libmlx5; sums by category are compared"),
    Finding("endpoints", "headline", "2xDynamic has 108 % of the rate of MPI everywhere with 40 of its 128 UARs "
            "(31 %)", ("endpoints-12", "endpoints-resources"), "as Fig. 12 and Table I"),
    Finding("endpoints", "headline", "MPI with threads over one endpoint has 3 % of that rate",
            ("endpoints-12",), "as Fig. 12; endpoints-mpi has MPICH's own threads"),
    Finding("reuse", "Fig. 3", "A hash finds a buffer faster than a tree", ("reuse-lookup",),
            "the paper's values are not at hand"),
    Finding("reuse", "Fig. 4", "Ping-pong gains up to 14 % at 8 KB; theory has 15 %", ("reuse-pingpong",),
            "gains are compared with the paper's equation 6 and this machine's costs"),
    Finding("reuse", "Fig. 5", "The two-sided spectrum of reuse gains 12.7 % at 8 KB", ("reuse-spectrum",),
            "the number of buffers is our reading"),
    Finding("reuse", "Fig. 6", "Put gains 20 %, get 17 % at 8 KB; both lose below 1 KB",
            ("reuse-mpi-put", "reuse-mpi-get"), "MPICH's MPI_Put and MPI_Get with a fence"),
    Finding("reuse", "Fig. 7", "The one-sided spectrum of reuse", ("reuse-spectrum-one-sided",),
            "the paper's values are not at hand"),
    Finding("reuse", "Fig. 8", "Broadcast gains over 25 % (abstract: 19 %) on 4 processes; scatter",
            ("reuse-mpi-bcast", "reuse-mpi-scatter"), "four ranks need four processors"),
    Finding("reuse", "Fig. 9", "Programs with reuse: LU sends in 18.3 % less time, MILC in 7 % less; time in MPI, "
            "and of the whole run", ("reuse-applications", "reuse-npb"),
            "a lattice code of ours for MILC, hypre's multigrid for AMG2006; fewer ranks"),
    Finding("reuse", "Table 1", "How often programs use their buffers", ("reuse-programs", "reuse-npb"),
            "the paper's values are not at hand"),
    Finding("reuse", "Table 2", "A registration has paid after 32 uses (ring), 49 (send), 25 (one-sided) at 8 KB",
            ("reuse-break-even",), "where a gather costs more than the copy, it never pays here"),
    Finding("reuse", "Table 3", "From reused buffers come 43 % of CG's messages, 99 % of LU's, 77 % of AMG's, 44 % "
            "of MILC's", ("reuse-applications", "reuse-programs", "reuse-npb"),
            "a lattice code of ours for MILC, hypre's multigrid for AMG2006"),
    Finding("direct", "Figs. 1 to 5", "Point to point gains below 5 % from 4 KB on, nothing beyond 16 KB",
            ("direct-point-to-point", "direct-ucx"), OWN_PATHS),
    Finding("direct", "Figs. 1 to 5", "Allgather gains up to 30 %, scatter over 50 % at 1 MB",
            ("direct-collectives", "direct-ucx"), "2 or 4 ranks instead of 512"),
    Finding("direct", "text", "At 2048 ranks collectives gain up to 20 %", (), "128 nodes with 16 ranks each are not "
            "at hand"),
    Finding("direct", "text on Figs. 1 to 5", "Instructions, misses and stalled cycles explain it",
            ("direct-instructions", "direct-mpi-counts"), "callgrind where the processor has no counters"),
    Finding("direct", "Fig. 10", "The heap is constant with mlx5dv, and grows with the processes by verbs",
            ("direct-heap",), "libibverbs makes the queue pairs on both of heddle's paths"),
    Finding("direct", "text", "MILC gains within 1 %", ("direct-lattice",), "a lattice code of ours for MILC; two ranks"),
    Finding("direct", "text", "LAMMPS gains slightly more than 1 %", ("direct-lammps",), "two ranks"),
    Finding("tupleq", "Fig. 5", "Sender and receiver have near 100 % of their time; by RPUT and RGET 0 from 8 KB on",
            ("tupleq-smb", "tupleq-overlap"), "availability is of the fastest protocol's time"),
    Finding("tupleq", "Fig. 6", "NAS SP, class B: 27.4 s, with copies 28.7 s, by RGET 36.8 s, by RPUT 36.7 s",
            ("tupleq-sp", "tupleq-adi"), "4 ranks instead of 64"),
    Finding("tupleq", "Fig. 6", "NAS SP, class C: 27 % better", (),
            "class C takes hours where processors are few; bench/mpi/outside.py has --class C"),
)


@dataclass(frozen=True)
class Row:
    finding: Finding
    paper: str  # its short name
    experiments: list  # those that are shown
    verdict: str

    def cells(self, experiments):
        """Those below HEAD; experiments: the text of that cell, or nothing."""
        return [self.paper, self.finding.where, self.finding.what, experiments or "–", self.finding.differs,
                self.verdict]


HEAD = ("paper", "in it", "what it found", "experiments", "what differs", "verdict")


def rows(run, experiments):
    """A row for each finding of whose experiments one is among these. Findings of which nobody has one are shown
    with the others of their paper."""
    known = {each.key: each for each in experiments}
    papers = {each.paper for each in experiments}
    found = []
    for each in FINDINGS:
        mine = [known[key] for key in each.by if key in known]
        if mine if each.by else each.paper in papers:
            found.append(Row(each, catalogue.PAPERS[each.paper][0], mine, verdict(run, mine)))
    return found


def verdict(run, experiments):
    """That of all; each by its key where they differ."""
    said = [runs.state_text(each, run.state_of(each)[0]) for each in experiments]
    if not said:
        return runs.STATES["cannot"]
    return said[0] if len(set(said)) == 1 else "; ".join(
        f"{each.key}: {text}" for each, text in zip(experiments, said))


def others(experiments):
    """Those that reproduce nothing of a paper."""
    cited = {key for each in FINDINGS for key in each.by}
    return [each for each in experiments if each.key not in cited]
