# SPDX-License-Identifier: BSD-2-Clause
"""What a guest boots: a Linux kernel with Soft-RoCE, and an initramfs of busybox and the modules that
it loads. Both come from the machine, or else from Debian's packages, which are unpacked below the
scratch folder and not installed. Standard library only.
"""

import lzma
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = (
    "virtio_pci",
    "virtio_net",
    "virtio_rng",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32_generic",  # rdma_rxe asks for it by the name of its algorithm
    "crc32_pclmul",
    "rdma_rxe",
    "rdma_ucm",
)
FOLDERS = ("bin", "proc", "sys", "dev", "modules", "lower", "upper", "root")
COMMANDS = ("sh", "mount", "mkdir", "insmod", "cat", "switch_root", "ln", "echo")


class Unavailable(Exception):
    """Something that guests need and that cannot be had here; the text says what and why."""


@dataclass(frozen=True)
class Kernel:
    """A kernel's image, and the folder of its modules."""

    image: Path
    modules: Path

    @property
    def version(self):
        return self.modules.name


def qemu():
    found = shutil.which("qemu-system-x86_64")
    if not found:
        raise Unavailable("no qemu-system-x86_64 (Debian: qemu-system-x86)")
    return found


def find_kernel(scratch, folder=None):
    """A kernel that has rdma_rxe: in `folder`, if one is named, else the machine's, else Debian's.

    `folder` is the root of an unpacked kernel package. Raises Unavailable.
    """
    if folder:
        found = kernel_below(Path(folder))
        if not found:
            raise Unavailable(f"no kernel with rdma_rxe below {folder}")
        return found
    unpacked = Path(scratch) / "kernel"
    found = kernel_below(Path("/")) or kernel_below(unpacked)
    if found:
        return found
    unpack(newest_kernel_package(), unpacked)
    found = kernel_below(unpacked)
    if not found:
        raise Unavailable("Debian's kernel package has no rdma_rxe")
    return found


def kernel_below(root):
    for modules in sorted((root / "lib" / "modules").glob("*"), reverse=True):
        image = root / "boot" / f"vmlinuz-{modules.name}"
        if os.access(image, os.R_OK) and module_files(modules).get("rdma_rxe"):
            return Kernel(image, modules)
    return None


def newest_kernel_package():
    """The package that linux-image-amd64 depends on, which has the kernel itself."""
    text = output_of(["apt-cache", "depends", "linux-image-amd64"])
    found = re.findall(r"Depends: (linux-image-\S+)", text)
    if not found:
        raise Unavailable("apt knows no package linux-image-amd64")
    return found[0]


def find_busybox(scratch):
    """A busybox that needs no libraries. Raises Unavailable."""
    unpacked = Path(scratch) / "busybox"
    for candidate in (Path("/bin/busybox"), unpacked / "bin" / "busybox"):
        if os.access(candidate, os.X_OK) and b"/ld-linux" not in candidate.read_bytes():
            return candidate
    unpack("busybox-static", unpacked)
    return unpacked / "bin" / "busybox"


def unpack(package, folder):
    """Fetches a Debian package and unpacks it. Raises Unavailable."""
    download = folder.parent / "download"
    download.mkdir(parents=True, exist_ok=True)
    for old in download.glob(f"{package}_*.deb"):
        old.unlink()
    output_of(["apt-get", "download", package], directory=download, seconds=600)
    archives = list(download.glob(f"{package}_*.deb"))
    if not archives:
        raise Unavailable(f"apt-get download {package} brought nothing")
    # Another folder first: one that is there is complete.
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    output_of(["dpkg-deb", "-x", archives[0], partial], seconds=600)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    archives[0].unlink()


def output_of(argv, *, directory=None, seconds=60):
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, cwd=directory, capture_output=True, text=True, timeout=seconds, check=True
        )
    except subprocess.CalledProcessError as reason:
        lines = (reason.stderr or reason.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{' '.join(words)}: {lines[-1]}") from reason
    except (OSError, subprocess.SubprocessError) as reason:
        raise Unavailable(f"{' '.join(words)}: {reason}") from reason
    return done.stdout


# Modules


def module_files(folder):
    """Every module below a folder, by the name that the kernel gives it."""
    found = {}
    for path in folder.rglob("*.ko*"):
        name, _, suffix = path.name.partition(".")
        if suffix in ("ko", "ko.xz"):
            found[name.replace("-", "_")] = path
    return found


def read_module(path):
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def needed_modules(kernel, names):
    """The contents of these modules and of those they need, in the order to load them.

    A name without a file is taken for one that is built into the kernel.
    """
    files = module_files(kernel.modules)
    ordered = {}

    def add(name):
        name = name.replace("-", "_")
        if name in ordered or name not in files:
            return
        content = read_module(files[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", content)
        for other in filter(None, (depends[1] if depends else b"").decode().split(",")):
            add(other)
        ordered[name] = content

    for name in names:
        add(name)
    return ordered


# The initramfs


def make_initramfs(kernel, busybox, target):
    """Writes the initramfs: init.sh, busybox, and the modules with their order."""
    modules = needed_modules(kernel, MODULES)
    archive = Archive()
    for folder in FOLDERS:
        archive.add(folder, mode=0o40755)
    archive.add("init", (HERE / "init.sh").read_bytes(), mode=0o100755)
    archive.add("bin/busybox", busybox.read_bytes(), mode=0o100755)
    for command in COMMANDS:
        archive.add(f"bin/{command}", b"busybox", mode=0o120777)
    for name, content in modules.items():
        archive.add(f"modules/{name}.ko", content)
    archive.add("modules/order", "".join(f"{name}\n" for name in modules).encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(archive.finish())
    return target


class Archive:
    """A cpio archive of the kind that the kernel unpacks ("newc", buffer-format.rst)."""

    def __init__(self):
        self._parts = []
        self._entries = 0

    def add(self, name, content=b"", *, mode=0o100644):
        self._entries += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, time, size, four device numbers, length of the name, checksum
        fields = (self._entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
        self._parts += [padded(head), padded(content)]

    def finish(self):
        self.add("TRAILER!!!")
        return b"".join(self._parts)


def padded(content):
    return content + bytes(-len(content) % 4)
