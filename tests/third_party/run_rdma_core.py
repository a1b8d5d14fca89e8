#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A newer rdma-core on softhca: its own example programs, and Debian's perftest over its libraries.

SOFTHCA_RDMA_CORE (or --prefix) names where it is: bin/ with the programs, lib/ with the libraries,
an installation or a build tree of rdma-core. Without it there is nothing to do (exit code 77).
"""

import os
import re
import sys
from pathlib import Path

import ibv_cases
import run_perftest
from harness import UAR_BY_MEMORY, Failure, Mode, Suite

NOTHING_TO_DO = 77


def main():
    def add_options(parser):
        parser.add_argument(
            "--prefix", type=Path, default=os.environ.get("SOFTHCA_RDMA_CORE") or None
        )

    suite = Suite("rdma_core", __doc__.partition("\n\n")[0], add_options=add_options)
    prefix = suite.options.prefix
    if not prefix:
        print("rdma_core: SOFTHCA_RDMA_CORE is not set\nrdma_core: 0 passed, 0 failed, 1 skipped")
        return NOTHING_TO_DO
    prefix = prefix.resolve()
    libraries = [folder for folder in (prefix / "lib", prefix / "lib64", *prefix.glob("lib/*-linux-*"))
                 if list(folder.glob("libibverbs.so.1*"))]
    if not libraries or not (prefix / "bin" / "ibv_devinfo").exists():
        print(f"rdma_core: {prefix} has no lib/libibverbs.so.1 or no bin/ibv_devinfo")
        return 2
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    tools = ibv_cases.Tools(prefix / "bin", environment)
    suite.case("programs use the libraries of the prefix", check_libraries, suite, tools, prefix)
    ibv_cases.add(suite, tools)
    for run in run_perftest.representative():
        for mode in UAR_BY_MEMORY if suite.full else (Mode(), Mode(uar="static", memory="cma")):
            suite.case(f"{run}, {mode}", run_perftest.run_pair, suite, run, mode, environment)
    return suite.main()


def check_libraries(suite, tools, prefix):
    """That it is the newer provider which drives the device, and not the installed one."""
    watch = suite.start([tools.path("ibv_asyncwatch")], environment=tools.environment)
    if watch.wait(0.5):
        raise Failure(f"ended by itself\n{watch.describe()}")
    maps = Path(f"/proc/{watch.pid}/maps").read_text(encoding="utf-8")
    mapped = sorted(set(re.findall(r"/\S*lib(?:ibverbs|mlx5)\S*\.so\S*", maps)))
    watch.signal_leader(15)
    watch.wait(5)
    suite.run([tools.path("ibv_devices")], environment=tools.environment)
    for name in ("libibverbs", "libmlx5"):
        chosen = [path for path in mapped if Path(path).name.startswith(name)]
        if not chosen or not all(path.startswith(f"{prefix}/") for path in chosen):
            raise Failure(f"{name} is not the one below {prefix}: {', '.join(mapped)}")
    return ", ".join(Path(path).name for path in mapped)


if __name__ == "__main__":
    sys.exit(main())
