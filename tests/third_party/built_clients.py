# SPDX-License-Identifier: BSD-2-Clause
"""Clients from PyPI and crates.io, fetched into the scratch folder. See run_clients.py."""

import os
import re
import shutil
import time
from pathlib import Path

from harness import DEVICE, Failure, Skip
from program import describe


def fetched(suite, argv, seconds, **keywords):
    """A step that needs a registry. What fails there is no fault of the device."""
    program = suite.run_plain(argv, expect=None, seconds=seconds, **keywords)
    if program.code != 0:
        last = (program.output().strip().splitlines() or ["no output"])[-1]
        raise Skip(f"{' '.join(map(str, argv[:3]))}: {last[:120]}")
    return program


# Mooncake

def mooncake(suite, mode, package):
    """Its benchmark: one process registers memory, another reads and writes it."""
    folder = suite.scratch("mooncake")
    bench = folder / "bin" / "transfer_engine_bench"
    if not bench.exists():
        fetched(suite, ["python3", "-m", "venv", folder], 60)
        fetched(suite, [folder / "bin" / "pip", "install", "-q", package], 600)
    common = ["-metadata_server=P2PHANDSHAKE", f"-device_name={DEVICE}", "-protocol=rdma",
              f"-buffer_size={128 << 20}", "-backend=classic"]
    target = suite.start([bench, "-mode=target", "-local_server_name=127.0.0.1", *common], mode=mode, title="target")
    deadline = time.monotonic() + suite.scaled(60)
    while not (ready := re.search(r"RDMA device: .*", target.output())):
        if time.monotonic() > deadline or not target.running():
            raise Failure(f"the target is not ready\n{target.describe()}")
        time.sleep(0.1)
    segment = re.search(r"listening on (\S+)", target.output())[1]
    batches = []
    for operation in ("read", "write"):
        program = suite.run(
            [bench, "-mode=initiator", "-local_server_name=127.0.0.1", f"-segment_id={segment}", *common,
             f"-operation={operation}", "-threads=2", "-batch_size=8", "-block_size=65536", "-duration=2"],
            mode=mode, title="initiator", seconds=90)
        found = re.search(r"Test completed: .* batch count (\d+)", program.output())
        if not found or int(found[1]) == 0:
            raise Failure(f"no batch by {operation}\n{describe([target, program])}")
        batches.append(int(found[1]))
    return f"{batches[0]} batches read, {batches[1]} written; {ready[0][:24]}"


# sideway

def sideway(suite, mode, crate):
    """The examples of the crate: a ping-pong by extended verbs, connections by rdma_cm."""
    name, version = crate.split("@")
    target = built_crate(suite, name, version)
    examples = target / "debug" / "examples"
    # The other ping-pong, rc_pingpong, posts while it reads the CQ and gives no entry back before the
    # CQ is empty. Here a post completes at once, so the CQ is not empty before it has overrun.
    port = suite.free_port()
    pingpong = [examples / "rc_pingpong_split", "-d", DEVICE, "-p", port, "-g", 1 if mode.port == "roce" else 0]
    _, client = suite.pair(pingpong, [*pingpong, "127.0.0.1"], port=port, mode=mode, seconds=60)
    if not re.search(r"^1000 iters in", client.output(), re.M):
        raise Failure(f"the ping-pong did not come to its end\n{client.describe()}")
    port = suite.free_port()
    cmtime = [examples / "cmtime", "-p", port, "-c", 50]
    server = suite.start(cmtime, mode=mode, title="server")
    deadline = time.monotonic() + suite.scaled(20)
    while not any(each["state"] == "listening" for each in (suite.stat() or {}).get("connections", [])):
        if time.monotonic() > deadline or not server.running():
            raise Failure(f"the server does not listen\n{server.describe()}")
        time.sleep(0.05)
    client = suite.run([*cmtime, "-s", "127.0.0.1"], mode=mode, title="client", seconds=60)
    if not re.search(r"Disconnect +\| +[\d.]+", client.output()):
        raise Failure(f"no times\n{describe([server, client])}")
    return "rc_pingpong_split, cmtime"


def built_crate(suite, name, version):
    """Cargo's copy of the crate, with its examples compiled by the versions of its lock file."""
    folder = suite.scratch(name)
    environment = {"CARGO_TARGET_DIR": str(folder / "target")}
    copy = folder / f"{name}-{version}"
    if not copy.is_dir():
        user = folder / "user"
        shutil.rmtree(user, ignore_errors=True)
        (user / "src").mkdir(parents=True)
        (user / "src" / "lib.rs").touch()
        (user / "Cargo.toml").write_text(
            f'[package]\nname = "user"\nversion = "0.0.0"\n[workspace]\n[dependencies]\n{name} = "={version}"\n',
            encoding="ascii")
        fetched(suite, ["cargo", "fetch", "--quiet"], 300, directory=user)
        home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
        found = sorted(home.glob(f"registry/src/*/{copy.name}"))
        if not found:
            raise Skip(f"cargo has no source of {copy.name} below {home}")
        shutil.copytree(found[-1], copy)
    fetched(suite, ["cargo", "build", "--quiet", "--locked", "--examples", "-j", 2], 1500,
            directory=copy, environment=environment)
    return folder / "target"
