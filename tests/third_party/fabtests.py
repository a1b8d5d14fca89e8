# SPDX-License-Identifier: BSD-2-Clause
"""What the scripts that run libfabric's functional tests, fabtests, share: building libfabric and
fabtests, fabtests' own lists of tests, and the judgement of a test that ended.

libfabric and fabtests are built below --scratch, once, from --source (a git repository or a source
tree) or from GitHub.
"""

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

from harness import SOURCE_ROOT, Failure, Skip, describe

VERSION = "v2.5.1"  # of the libfabric in the wheels of MPICH 5.0.2 and Open MPI 5.0.11
REPOSITORY = "https://github.com/ofiwg/libfabric"
# Providers that no script tests; verbs, rxm, rxd and tcp stay.
DISABLED = (
    "cxi dmabuf_peer_mem efa hook_debug hook_hmem lnx lpp monitor mrail opx perf profile psm2 psm3"
    " shm sm2 trace ucx udp usnic"
).split()
NEGATIVE = "g00n13s"  # the name of a host that does not exist: the tests must end with ENODATA
NOT_THERE = {errno.ENODATA: "ENODATA", errno.ENOSYS: "ENOSYS"}
NOTHING_TO_DO = 77


def add_options(parser):
    parser.set_defaults(scratch=SOURCE_ROOT / "build" / "fabtests")
    parser.add_argument("--source", type=Path, help=f"libfabric {VERSION}, instead of GitHub's")
    parser.add_argument("--prefix", type=Path, help="libfabric and fabtests, already installed")


# Building


def build(options):
    """Where libfabric and fabtests are installed; built if they are not yet."""
    if options.prefix:
        return options.prefix.resolve()
    folder = options.scratch
    # The name changes with what is built: an installation without verbs is not used again.
    prefix = folder / f"libfabric-{VERSION}-verbs"
    if (prefix / "bin" / "fi_ubertest").exists():
        return prefix
    for tool in ("autoconf", "automake", "libtoolize", "make", "cc"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} to build it with")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"fabtests: building libfabric and fabtests {VERSION} in {folder}", flush=True)
    log = folder / "build.log"
    log.write_bytes(b"")
    source = unpack(options, folder, log)
    make = ["make", f"-j{max(1, (os.cpu_count() or 2))}"]
    chosen = [*(f"--disable-{name}" for name in DISABLED), "--enable-verbs"]
    common = [f"--prefix={prefix}", "CFLAGS=-O1 -g"]
    steps = (
        (source, ["./autogen.sh"]),
        (source, ["./configure", "--disable-static", *chosen, *common]),
        (source, [*make, "install"]),
        (source / "fabtests", ["./autogen.sh"]),
        (source / "fabtests", ["./configure", f"--with-libfabric={prefix}", *common]),
        (source / "fabtests", [*make, "install"]),
    )
    for where, argv in steps:
        logged(argv, log, where)
    return prefix


def unpack(options, folder, log):
    source = folder / "libfabric"
    shutil.rmtree(source, ignore_errors=True)
    if options.source is None:
        try:
            logged(["git", "clone", "-q", "--depth", "1", "--branch", VERSION, REPOSITORY, source], log)
        except subprocess.SubprocessError as reason:
            raise Skip(f"cannot clone {REPOSITORY}, see {log}; use --source") from reason
    elif (options.source / "configure.ac").exists():
        shutil.copytree(options.source, source, symlinks=True)
    else:
        source.mkdir()
        archive = folder / "source.tar"
        with open(archive, "wb") as file:
            argv = ["git", "-C", options.source, "archive", VERSION]
            subprocess.run(argv, stdout=file, check=True)
        logged(["tar", "-xf", archive, "-C", source], log)
        archive.unlink()
    return source


def logged(argv, log, where=None):
    argv = [str(word) for word in argv]
    with open(log, "ab") as file:
        done = subprocess.run(
            argv, cwd=where, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
        )
    if done.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-5:]
        raise subprocess.SubprocessError(f"{' '.join(argv[:2])} failed, see {log}: " + " | ".join(lines))


# fabtests' lists, and the results


def test_lists(prefix):
    """The arrays of tests in runfabtests.sh: {name: [command line]}."""
    lists = {}
    text = (prefix / "bin" / "runfabtests.sh").read_text(encoding="utf-8")
    for name, body in re.findall(r"^(\w+_tests)=\((.*?)^\)", text, re.M | re.S):
        lists[name] = re.findall(r'"([^"]+)"', body)
    return lists


def command(prefix, text, address):
    words = text.replace("SERVER_ADDR", address).replace("GOOD_ADDR", address).split()
    return [prefix / "bin" / words[0], *words[1:]]


def judge(suite, programs, expected=0, excluded="fabtests_excluded.txt"):
    """Fails unless all ended as expected; one that does not apply must be in the list of those."""
    codes = {program.code for program in programs}
    if any(program.timed_out for program in programs):
        raise Failure("not done in time\n" + describe(programs))
    if codes == {expected}:
        suite.refuse_device_errors(programs)
        return
    if expected == 0 and len(codes) == 1 and (code := codes.pop()) in NOT_THERE:
        raise Failure(
            f"does not apply ({NOT_THERE[code]}), and {excluded} does not say so\n{describe(programs)}"
        )
    states = ", ".join(f"{program.title}: {program.state()}" for program in programs)
    raise Failure(f"{states}\n{describe(programs)}")


def unit_count(program):
    """How many tests a unit test says it ran, if it says so."""
    counts = re.findall(r"(\d+) tests? (?:failed|passed|skipped|excluded)", program.output())
    return f"{counts[0]} tests" if counts else None


def ubertest_counts(programs):
    """What fi_ubertest's client counted, as a text; fails if a test failed, or none ran."""
    text = programs[-1].output()
    counts = dict(re.findall(r"^(Success|Skipped|ENODATA|ENOSYS|EIO|ERROR) *: (\d+)", text, re.M))
    wrong = any(int(counts.get(word, 0)) for word in ("ENOSYS", "EIO", "ERROR"))
    if wrong or int(counts.get("Success", 0)) == 0:
        raise Failure(f"{counts}\n{describe(programs)}")
    return ", ".join(f"{word} {count}" for word, count in counts.items() if count != "0")
