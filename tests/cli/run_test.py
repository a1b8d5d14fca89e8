# SPDX-License-Identifier: BSD-2-Clause
"""`softhca run`: what the program sees, whose exit status comes back, what is refused and how."""

import os
import shutil
import signal
import stat
import subprocess

from harness import BUILD_DIR, LIBRARY, SOFTHCA, Case, main


class Environment(Case):
    def variables(self, *arguments, **options):
        result = self.assert_run(self.softhca("run", *arguments, "env", **options), 0)
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)

    def test_library_is_preloaded(self):
        maps = self.assert_run(self.softhca("run", "cat", "/proc/self/maps"), 0).stdout
        self.assertIn(os.path.realpath(LIBRARY), maps)

    def test_options_become_variables(self):
        seen = self.variables(
            "--uar",
            "static",
            "--engine=thread",
            "--memory",
            "cma",
            "--memlock",
            "enforce",
            "--lost-peer=flush",
            "--device",
            "strict,-no-xrc,seed:4",
            "--fabric=a.b-c_D9",
            "--log",
            "debug",
            "--log-file",
            self.path("log"),
            "--",
        )
        self.assertEqual(
            {name: value for name, value in seen.items() if name.startswith("SOFTHCA_")},
            {
                "SOFTHCA_UAR": "static",
                "SOFTHCA_ENGINE": "thread",
                "SOFTHCA_MEMORY": "cma",
                "SOFTHCA_MEMLOCK": "enforce",
                "SOFTHCA_LOST_PEER": "flush",
                "SOFTHCA_DEVICE": "strict,-no-xrc,seed:4",
                "SOFTHCA_FABRIC": "a.b-c_D9",
                "SOFTHCA_LOG": "debug",
                "SOFTHCA_LOG_FILE": self.path("log"),
            },
        )

    def test_a_log_file_that_cannot_be_written_is_refused(self):
        os.symlink(self.path("target"), self.path("link"))
        for name, why in (("none/log", "none: No such file or directory"), ("", "Is a directory"),
                          ("link", "it is a symbolic link")):
            file = self.path(name)
            for result in (self.softhca("run", "--log-file", file, "true"),
                           self.softhca("run", "true", env={"SOFTHCA_LOG_FILE": file})):
                self.assert_run(result, 125, err=f"the log file {file} cannot be written: ")
                self.assertIn(why, result.stderr)
        self.assert_run(self.softhca("run", "--log-file", self.path("log"), "true"), 0)
        self.assertFalse(os.path.exists(self.path("log")), "nothing was logged")

    def test_a_log_file_that_becomes_a_link_is_not_followed(self):
        result = self.softhca(
            "run", "--log", "debug", "--log-file", self.path("log"), "--", "sh", "-c",
            'rm -f "$1" && ln -s "$2" "$1" && exec ibv_devinfo -l', "sh", self.path("log"),
            self.path("target"))
        self.assert_run(result, 0)
        self.assertIn(f"SOFTHCA_LOG_FILE {self.path('log')} cannot be written", result.stderr)
        self.assertFalse(os.path.exists(self.path("target")), "the link was followed")

    def test_a_log_file_that_goes_is_said_once(self):
        os.makedirs(self.path("folder"))
        result = self.softhca(
            "run", "--log", "debug", "--log-file", self.path("folder", "log"), "--", "sh", "-c",
            'rm -r "$1" && exec ibv_devinfo -l', "sh", self.path("folder"))
        self.assert_run(result, 0)
        said = f"SOFTHCA_LOG_FILE {self.path('folder', 'log')} cannot be written (No such file"
        self.assertEqual(result.stderr.count(said), 1, result.stderr)
        self.assertGreater(len(result.stderr.splitlines()), 1)

    def test_options_override_the_environment(self):
        seen = self.variables(
            "--uar", "dynamic", env={"SOFTHCA_UAR": "static", "SOFTHCA_MEMORY": "cma"}
        )
        self.assertEqual(seen["SOFTHCA_UAR"], "dynamic")
        self.assertEqual(seen["SOFTHCA_MEMORY"], "cma")

    def test_an_overridden_variable_may_be_wrong(self):
        self.assertEqual(
            self.variables("--uar", "dynamic", env={"SOFTHCA_UAR": "nonsense"})["SOFTHCA_UAR"],
            "dynamic",
        )

    def test_nothing_is_set_unasked(self):
        seen = self.variables(env={"SOFTHCA_FABRIC": None})
        self.assertEqual([name for name in seen if name.startswith("SOFTHCA_")], [])

    def test_other_preloads_stay_in_front(self):
        other = self.path("other.so")
        source = self.write("other.c", "int other_library = 1;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
        before = self.environment.get("LD_PRELOAD", "")
        for separator in (":", " "):
            preload = separator.join(filter(None, [before, other]))
            seen = self.variables(env={"LD_PRELOAD": preload})
            self.assertEqual(
                seen["LD_PRELOAD"].split(":"),
                [*filter(None, [before, other]), os.path.realpath(LIBRARY)],
            )

    def test_memory_hooks_behind_the_library_see_the_program(self):
        """UCX hooks libc's own functions, and has no registration cache if its test of them fails."""
        hooks = self.path("libhooks.so")
        source = self.write("hooks.c", """
            #define _GNU_SOURCE
            #include <sys/mman.h>
            #include <sys/syscall.h>
            #include <unistd.h>
            int maps, advices;
            void* mmap(void* at, size_t length, int prot, int flags, int fd, off_t offset) {
                ++maps;
                return (void*)syscall(SYS_mmap, at, length, prot, flags, fd, offset);
            }
            int madvise(void* at, size_t length, int advice) {
                ++advices;
                return (int)syscall(SYS_madvise, at, length, advice);
            }
            """)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", hooks, source], check=True)
        program = self.path("hooked")
        source = self.write("hooked.c", """
            #include <stdio.h>
            #include <sys/mman.h>
            extern int maps, advices;
            int main(void) {
                maps = advices = 0;
                void* at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (at == MAP_FAILED || madvise(at, 4096, MADV_DONTNEED) != 0) return 1;
                printf("%d maps, %d advices\\n", maps, advices);
            }
            """)
        subprocess.run(["cc", "-D_DEFAULT_SOURCE", "-o", program, source, hooks,
                        f"-Wl,-rpath,{os.path.dirname(hooks)}"], check=True)
        self.assert_run(self.softhca("run", "--fabric", self.fabric, program), 0,
                        out="1 maps, 1 advices")

    def test_nested_runs_do_not_stack(self):
        outer = self.softhca(
            "run", "--uar", "static", SOFTHCA, "run", "--fabric", self.fabric, "env"
        )
        self.assert_run(outer, 0, out="SOFTHCA_UAR=static")
        line = next(l for l in outer.stdout.splitlines() if l.startswith("LD_PRELOAD="))
        self.assertEqual(line.count("libsofthca.so"), 1, line)

    def test_another_copy_of_the_library_is_replaced(self):
        # An absent one: the loader would only complain about it.
        before = self.environment.get("LD_PRELOAD", "")
        preload = ":".join(filter(None, [before, "/nowhere/libsofthca.so"]))
        seen = self.variables(env={"LD_PRELOAD": preload})
        self.assertEqual(
            seen["LD_PRELOAD"].split(":"), [*filter(None, [before]), os.path.realpath(LIBRARY)]
        )


class Arguments(Case):
    def test_the_programs_own_options_are_its_own(self):
        for separator in ([], ["--"]):
            result = self.softhca(
                "run",
                "--uar",
                "static",
                *separator,
                "printf",
                "<%s>",
                "--uar",
                "--",
                "-h",
                "--help",
                "",
                "a b",
            )
            self.assert_run(result, 0)
            self.assertEqual(result.stdout, "<--uar><--><-h><--help><><a b>")

    def test_the_program_sees_the_name_it_was_called_by(self):
        self.assertEqual(self.softhca("run", "sh", "-c", "echo $0").stdout, "sh\n")
        self.assertEqual(
            self.softhca("run", "sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline; :").stdout.split()[0],
            "sh",
        )

    def test_relative_path(self):
        self.write("here/program", "#!/bin/sh\necho relative\n", 0o755)
        self.assert_run(self.softhca("run", "./here/program", cwd=self.scratch), 0, out="relative")

    def test_path_is_searched_in_order(self):
        self.write("first/program", "not executable\n", 0o644)
        self.write("second/program", "#!/bin/sh\necho second\n", 0o755)
        path = f"{self.path('first')}:{self.path('second')}:{os.environ['PATH']}"
        self.assert_run(self.softhca("run", "program", env={"PATH": path}), 0, out="second")

    def test_script_without_interpreter_line(self):
        self.write("script", "echo by the shell\n", 0o755)
        self.assert_run(self.softhca("run", self.path("script")), 0, out="by the shell")


class ExitStatus(Case):
    def test_is_the_programs(self):
        self.assert_run(self.softhca("run", "sh", "-c", "exit 42"), 42)

    def test_death_by_signal_is_the_programs(self):
        self.assert_run(self.softhca("run", "sh", "-c", "kill -TERM $$"), -signal.SIGTERM)

    def test_pid_is_the_programs(self):
        with subprocess.Popen(
            [SOFTHCA, "run", "sh", "-c", "echo $$"],
            stdout=subprocess.PIPE,
            env=self.environment,
            text=True,
        ) as process:
            self.assertEqual(int(process.communicate(timeout=60)[0]), process.pid)

    def test_not_found(self):
        self.assert_run(
            self.softhca("run", "no-such-program"),
            127,
            err="softhca run: no-such-program: command not found",
        )
        self.assert_run(
            self.softhca("run", "/no/such/program"), 127, err="No such file or directory"
        )
        self.assert_run(self.softhca("run", ""), 127, err="empty")

    def test_not_executable(self):
        self.assert_run(self.softhca("run", self.write("data", "x")), 126, err="Permission denied")
        self.assert_run(self.softhca("run", self.scratch), 126, err="is a directory")

    def test_interpreter_is_missing(self):
        script = self.write("script", "#!/no/such/interpreter -x\n", 0o755)
        self.assert_run(self.softhca("run", script), 127, err="/no/such/interpreter")


class Refused(Case):
    def test_wrong_option_values_name_what_is_possible(self):
        for flag, possible in [
            ("uar", "dynamic or static"),
            ("engine", "hybrid, inline, thread or dedicated"),
            ("memory", "auto or cma"),
            ("fabric", "not starting with a dot"),
            ("log", "trace"),
        ]:
            result = self.softhca("run", "--" + flag, "a/b", "true")
            self.assert_run(result, 125, err=f"--{flag} 'a/b' is not possible")
            self.assertIn(possible, result.stderr)

    def test_wrong_environment_is_refused(self):
        result = self.softhca("run", "true", env={"SOFTHCA_ENGINE": "steam"})
        self.assert_run(result, 125, err='SOFTHCA_ENGINE="steam"')
        self.assertIn("hybrid, inline, thread or dedicated", result.stderr)

    def test_fabric_names(self):
        for name in ("x" * 64, "a", "9", "-dash", "A.b_c-d"):
            self.assert_run(self.softhca("run", "--fabric=" + name, "true"), 0)
        for name in ("x" * 65, ".hidden", "..", "a/b", "a b", "\u00e9"):
            self.assert_run(self.softhca("run", "--fabric=" + name, "true"), 125, err="fabric")

    def test_usage(self):
        self.assert_run(self.softhca("run"), 125, err="no command")
        self.assert_run(self.softhca("run", "--"), 125, err="no command")
        self.assert_run(self.softhca("run", "--uar"), 125, err="--uar")
        self.assert_run(self.softhca("run", "--frobnicate", "true"), 125, err="--frobnicate")

    def test_static_program(self):
        source = self.write("static.c", "int main(void) { return 0; }\n")
        for flags, name in (["-static"], "static"), (["-static-pie"], "static-pie"):
            program = self.path(name)
            subprocess.run(["cc", *flags, "-o", program, source], check=True)
            result = self.softhca("run", program)
            self.assert_run(result, 126, err="statically linked")
            self.assertIn(program, result.stderr)

    def test_script_with_static_interpreter(self):
        source = self.write("static.c", "int main(void) { return 0; }\n")
        subprocess.run(["cc", "-static", "-o", self.path("interpreter"), source], check=True)
        script = self.write("script", f"#! {self.path('interpreter')} argument\n", 0o755)
        self.assert_run(self.softhca("run", script), 126, err=self.path("interpreter"))

    def test_the_loader_as_a_command(self):
        loader = next(
            (
                path
                for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
                if os.path.exists(path)
            ),
            None,
        )
        if not loader:
            self.skipTest("no dynamic loader where it is expected")
        self.assert_run(self.softhca("run", loader, shutil.which("true")), 0)

    def test_another_architecture(self):
        with open(shutil.which("true"), "rb") as file:
            image = bytearray(file.read())
        image[18:20] = (8).to_bytes(2, "little")  # e_machine: MIPS
        program = self.path("mips")
        with open(program, "wb") as file:
            file.write(image)
        os.chmod(program, 0o755)
        self.assert_run(self.softhca("run", program), 126, err="another architecture")

    def test_damaged_headers_do_not_hurt(self):
        with open(shutil.which("true"), "rb") as file:
            image = file.read()
        os.mkdir(self.path("work"))
        for size in (0, 1, 4, 20, 63, 64, 100, 500):
            program = self.path(f"cut-{size}")
            with open(program, "wb") as file:
                file.write(image[:size])
            os.chmod(program, 0o755)
            # Whatever the kernel and the shell make of it, softhca itself must not crash, and what
            # begins as a program is no script: redirections in its bytes would make files.
            result = self.softhca("run", program, cwd=self.path("work"))
            self.assertIn(result.returncode, (0, 2, 126, 127) if size < 4 else (126,), size)
            self.assertEqual(os.listdir(self.path("work")), [])

    def test_setuid_program(self):
        if os.getuid() == 0:
            program = self.path("setuid")
            shutil.copy(shutil.which("true"), program)
            os.chown(program, 65534, 65534)
            os.chmod(program, 0o4755)
        else:
            program = shutil.which("su")
        if (
            not program
            or not os.stat(program).st_mode & stat.S_ISUID
            or os.statvfs(program).f_flag & os.ST_NOSUID
        ):
            self.skipTest("there is no setuid program here")
        self.assert_run(self.softhca("run", program), 126, err="setuid")


class Library(Case):
    """The library is looked for beside the command, not in the environment or the loader's path."""

    def test_is_found_from_anywhere(self):
        link = self.path("link")
        os.symlink(SOFTHCA, link)
        result = self.softhca("run", "cat", "/proc/self/maps", command=link, cwd="/")
        self.assert_run(result, 0, out=os.path.realpath(LIBRARY))

    def test_moved_tree(self):
        os.makedirs(self.path("moved", "bin"))
        os.makedirs(self.path("moved", "lib"))
        command = shutil.copy(SOFTHCA, self.path("moved", "bin", "softhca"))
        library = shutil.copy(LIBRARY, self.path("moved", "lib", "libsofthca.so"))
        result = self.softhca("run", "cat", "/proc/self/maps", command=command)
        self.assert_run(result, 0, out=os.path.realpath(library))

    def test_is_missing(self):
        os.makedirs(self.path("bin"))
        command = shutil.copy(SOFTHCA, self.path("bin", "softhca"))
        self.assert_run(
            self.softhca("run", "true", command=command), 125, err=self.path("lib", "libsofthca.so")
        )

    def test_path_that_cannot_be_preloaded(self):
        os.makedirs(self.path("my tools", "bin"))
        os.makedirs(self.path("my tools", "lib"))
        command = shutil.copy(SOFTHCA, self.path("my tools", "bin", "softhca"))
        shutil.copy(LIBRARY, self.path("my tools", "lib", "libsofthca.so"))
        self.assert_run(self.softhca("run", "true", command=command), 125, err="space")


class General(Case):
    def test_version(self):
        self.assertRegex(self.softhca("--version").stdout, r"^softhca \d+\.\d+\.\d+\n$")

    def test_help_fits_a_terminal(self):
        for arguments in (["--help"], ["run", "--help"], ["env", "--help"]):
            result = self.assert_run(self.softhca(*arguments), 0, out="Usage: softhca")
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, result.stdout)

    def test_unknown_command_names_the_known(self):
        result = self.assert_run(self.softhca("ib_write_lat"), 2, err="softhca run ib_write_lat")
        self.assertIn("stat", result.stderr)

    def test_no_command(self):
        self.assert_run(self.softhca(), 2, err="Usage:")


if __name__ == "__main__":
    main()
