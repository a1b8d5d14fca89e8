# SPDX-License-Identifier: BSD-2-Clause
"""Where fabrics are kept: when somebody else has the usual directory, when another is named, and
whatever the umask."""

import os
import subprocess

from harness import SOFTHCA, Case, main

NOBODY = 65534
# A shell that is on the fabric for as long as it runs.
JOIN = "exec 3< /sys/class/infiniband"


class DirectoryCase(Case):
    def setUp(self):
        super().setUp()
        self.environment.pop("XDG_RUNTIME_DIR", None)

    def runtime_directory(self, mode=0o700):
        path = self.path("runtime")
        os.mkdir(path)
        os.chmod(path, mode)
        return path

    def own(self, base):
        return os.path.join(base, f"softhca-{os.getuid()}")

    def shell(self, script, **options):
        """Runs `script` on the fabric, with its files in `self.scratch` if nothing else is said."""
        return self.softhca("run", "--", "sh", "-c", f"{JOIN} || exit 9; {script}", **options)


class Stranger(DirectoryCase):
    """Somebody else has made the directory below /dev/shm; in a mount namespace of the test."""

    def setUp(self):
        super().setUp()
        self.namespace = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
        if self.enter("true").returncode != 0:
            self.skipTest("no mount namespace can be made here")

    def enter(self, script, **environment):
        return subprocess.run(
            [*self.namespace, "sh", "-c", f"mount -t tmpfs tmpfs /dev/shm && {script}"],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def occupied(self, script, **environment):
        """Runs `script` where the directory is there already and cannot be trusted."""
        # Without privilege nothing can be given away, but anybody may write to this one.
        take = f"chown {NOBODY}" if os.getuid() == 0 else "chmod 777"
        directory = "/dev/shm/softhca-$(id -u)"
        return self.enter(f"mkdir {directory} && {take} {directory} && {script}", **environment)

    def on_fabric(self, script):
        return f"{SOFTHCA} run -- sh -c '{JOIN} || exit 9; {script}'"

    def test_the_error_says_what_to_do(self):
        result = self.occupied(self.on_fabric("true"))
        self.assertNotEqual(result.returncode, 0)
        for words in ("/dev/shm/softhca-", "SOFTHCA_DIRECTORY", "--directory"):
            self.assertIn(words, result.stderr)
        self.assert_run(self.occupied(f"{SOFTHCA} list"), 1, err="SOFTHCA_DIRECTORY")

    def test_the_runtime_directory_serves(self):
        runtime = self.runtime_directory()
        result = self.occupied(
            self.on_fabric(f"ls $XDG_RUNTIME_DIR/softhca-*; {SOFTHCA} list --names"),
            XDG_RUNTIME_DIR=runtime,
        )
        self.assert_run(result, 0, out=f"{self.fabric}.fabric")
        self.assertIn(self.fabric, result.stdout.splitlines())
        self.assertEqual(os.listdir(runtime), [], "left behind")

    def test_a_runtime_directory_for_everybody_does_not(self):
        runtime = self.runtime_directory(0o777)
        result = self.occupied(self.on_fabric("true"), XDG_RUNTIME_DIR=runtime)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("SOFTHCA_DIRECTORY", result.stderr)

    def test_a_named_directory_serves(self):
        result = self.occupied(self.on_fabric("ls $SOFTHCA_DIRECTORY"), SOFTHCA_DIRECTORY=self.scratch)
        self.assert_run(result, 0, out="softhca-")

    def test_the_fabric_stays_one_when_the_stranger_goes(self):
        second = self.on_fabric(f"{SOFTHCA} list --json")
        script = self.write("second.sh", f"rmdir /dev/shm/softhca-*\n{second}\n")
        result = self.occupied(
            self.on_fabric(f"sh {script}"), XDG_RUNTIME_DIR=self.runtime_directory()
        )
        self.assert_run(result, 0)
        live = [line for line in result.stdout.splitlines() if '"live"' in line]
        # The shell outside, the one that runs the script, and the one inside, if it has joined.
        self.assertEqual(len(live), 1, result.stdout)
        self.assertGreaterEqual(int(live[0].split(":")[1].strip(" ,")), 2, result.stdout)

    def test_without_strangers_the_environment_does_not_matter(self):
        result = self.enter(
            self.on_fabric("ls /dev/shm/softhca-*"), XDG_RUNTIME_DIR=self.runtime_directory()
        )
        self.assert_run(result, 0, out=f"{self.fabric}.fabric")


class Named(DirectoryCase):
    def test_everything_is_there(self):
        inside = self.own(self.scratch)
        for arguments, env in (
            (("--directory", self.scratch), {}),
            ((), {"SOFTHCA_DIRECTORY": self.scratch}),
        ):
            result = self.softhca(
                "run", *arguments, "--", "sh", "-c", f"{JOIN}; ls {inside}; {SOFTHCA} list --names", env=env
            )
            self.assert_run(result, 0, out=f"{self.fabric}.fabric\n{self.fabric}.tree\n")
            self.assertIn(self.fabric, result.stdout.splitlines())
            self.assertFalse(os.path.exists(inside), "left behind")

    def test_what_is_no_path_is_refused(self):
        self.assert_run(
            self.softhca("run", "--directory", "here", "--", "true"), 125, err="an absolute path"
        )

    def test_a_base_that_is_not_there(self):
        result = self.shell("true", env={"SOFTHCA_DIRECTORY": self.path("none")})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("No such file or directory", result.stderr)


class Umask(DirectoryCase):
    def test_others_can_join_whatever_it_is(self):
        """Also where nothing exists yet: the directory, the segment and the tree are made anew."""
        inside = self.own(self.scratch)
        for mask in (0o777, 0o700, 0o000):
            result = self.shell(
                f"stat -c %a {inside} {inside}/*.fabric {inside}/*.tree;"
                f"{SOFTHCA} run -- cat /sys/class/infiniband/mlx5_0/node_type",
                env={"SOFTHCA_DIRECTORY": self.scratch},
                umask=mask,
            )
            self.assert_run(result, 0)
            self.assertEqual(result.stdout.split(), ["700", "600", "700", "1:", "CA"], oct(mask))
            self.assertFalse(os.path.exists(inside), "left behind")

    def test_what_lacks_permissions_of_its_owner_is_repaired(self):
        """As a process leaves it that is killed between making and opening it."""
        inside = self.own(self.scratch)
        os.mkdir(inside)
        os.close(os.open(f"{inside}/{self.fabric}.fabric", os.O_CREAT, 0o000))
        os.chmod(inside, 0o000)
        result = self.shell("cat /sys/class/infiniband/mlx5_0/node_type",
                            env={"SOFTHCA_DIRECTORY": self.scratch})
        self.assert_run(result, 0, out="1: CA")


if __name__ == "__main__":
    main()
