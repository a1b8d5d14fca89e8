#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Another rdma-core on softhca: its example programs, rdma_cm's and its own Python tests, and
Debian's perftest over its libraries.

SOFTHCA_RDMA_CORE (or --rdma-core) names it: an installation, a build tree, or its sources. Without
it there is nothing to do (exit code 77).
"""

import os
import re
import sys
from pathlib import Path

import ibv_cases
import run_perftest
import run_pyverbs
import run_rdmacm
from harness import UAR_BY_MEMORY, Failure, Mode, Suite

NOTHING_TO_DO = 77


def main():
    def add_options(parser):
        parser.set_defaults(rdma_core=named and Path(named))
        run_pyverbs.add_options(parser, min_passed=170)

    named = os.environ.get("SOFTHCA_RDMA_CORE")
    suite = Suite("rdma_core", __doc__.partition("\n\n")[0], add_options=add_options)
    tree = suite.rdma_core
    if not tree:
        print("rdma_core: SOFTHCA_RDMA_CORE is not set\nrdma_core: 0 passed, 0 failed, 1 skipped")
        return NOTHING_TO_DO
    suite.case("programs use the libraries of the prefix", check_libraries, suite, tree)
    ibv_cases.add(suite)
    for run in run_perftest.representative():
        for mode in UAR_BY_MEMORY if suite.full else (Mode(), Mode(uar="static", memory="cma")):
            suite.case(f"{run}, {mode}", run_perftest.run_pair, suite, run, mode)
    run_rdmacm.add(suite)
    if tree.python and tree.tests:
        suite.options.tests = suite.options.tests or tree.tests
        run_pyverbs.add(suite, (Mode(), Mode(port="roce")))
    else:
        print(f"rdma_core: no pyverbs or no tests with {tree.prefix}; its Python tests are left out")
    return suite.main()


def check_libraries(suite, tree):
    """That it is this rdma-core's provider which drives the device, and not the installed one."""
    watch = suite.start(["ibv_asyncwatch"])
    if watch.wait(0.5):
        raise Failure(f"ended by itself\n{watch.describe()}")
    maps = Path(f"/proc/{watch.pid}/maps").read_text(encoding="utf-8")
    mapped = sorted(set(re.findall(r"/\S*lib(?:ibverbs|mlx5)\S*\.so\S*", maps)))
    watch.signal_leader(15)
    watch.wait(5)
    suite.run(["ibv_devices"])
    for name in ("libibverbs", "libmlx5"):
        chosen = [path for path in mapped if Path(path).name.startswith(name)]
        if not chosen or not all(path.startswith(f"{tree.prefix}/") for path in chosen):
            raise Failure(f"{name} is not the one below {tree.prefix}: {', '.join(mapped)}")
    return ", ".join(Path(path).name for path in mapped)


if __name__ == "__main__":
    sys.exit(main())
