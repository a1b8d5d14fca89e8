# SPDX-License-Identifier: BSD-2-Clause
"""heddle check-hardware: what it asks, what it makes of the answers of a kind and of a harsh device, and
the file that it writes."""

import json
import os
import socket

from harness import BUILD_DIR, Case, main, preload

HEDDLE = os.path.join(BUILD_DIR, "bin", "heddle")
CHECKS = ["versions", "device", "port", "registers", "entries", "arm", "arm-repeated", "order", "scatter",
          "numbers", "memory-events", "rates"]
# What must hold on every device, however harsh.
ALWAYS = ("versions", "port", "entries", "arm", "scatter")
ANSWERS = {"as expected", "differs", "could not be asked"}


class CheckHardware(Case):
    def check(self, device, *arguments, status=0, **environment):
        result = self.softhca("run", "--device", device, "--", HEDDLE, "check-hardware", *arguments,
                              env=environment, cwd=self.scratch)
        self.assertEqual(result.returncode, status, result.stderr)
        return result

    def answers(self, device, *arguments, **environment):
        result = self.check(device, "--json", "--out", self.path("out.json"), *arguments, **environment)
        with open(self.path("out.json"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text, result.stdout)
        found = json.loads(text)
        for check in found["checks"]:
            self.assertIn(check["verdict"], ANSWERS)
            self.assertTrue(check["seen"] and check["meaning"] and check["question"], check)
        self.assertEqual(sum(found["counts"].values()), len(found["checks"]))
        return {check["name"]: check for check in found["checks"]}

    def test_kind_and_strict(self):
        kind, strict = self.answers("kind"), self.answers("strict")
        for found in (kind, strict):
            self.assertEqual(list(found), CHECKS)
            for name in ALWAYS:
                self.assertEqual(found[name]["verdict"], "as expected", found[name])
            # Not every kernel lets every user watch memory.
            self.assertIn(found["memory-events"]["verdict"], ("as expected", "could not be asked"))
            self.assertEqual(found["entries"]["details"]["difference"], "")
            self.assertTrue(found["versions"]["details"]["software"])
        self.assertEqual(kind["order"]["verdict"], "as expected")
        self.assertEqual(kind["order"]["details"]["seen_early"], 0)
        self.assertEqual(strict["order"]["verdict"], "differs")
        self.assertGreater(strict["order"]["details"]["seen_early"], 0)
        for found in (kind, strict):
            self.assertEqual(found["order"]["details"]["seen_early_in_packet"], 0)
            self.assertGreaterEqual(found["order"]["details"]["packet_bytes"], 256)
        self.assertEqual(kind["numbers"]["verdict"], "differs")
        self.assertEqual(strict["numbers"]["verdict"], "as expected")
        self.assertEqual(kind["arm-repeated"]["verdict"], "differs")
        self.assertEqual(kind["arm-repeated"]["details"]["number_of_last"], "taken")
        self.assertIn("kinder", kind["arm-repeated"]["meaning"])
        self.assertEqual(strict["arm-repeated"]["verdict"], "as expected")
        self.assertEqual(strict["arm-repeated"]["details"]["number_of_last"], "ignored")
        for row in strict["rates"]["details"]["categories"]:
            self.assertGreater(min(row["verbs"], row["direct"]), 0, row)

    def test_what_a_device_lacks_is_named(self):
        found = self.answers("no-xrc,no-blueflame", "--only", "device", "--only", "registers",
                             "--only", "entries")
        self.assertEqual(list(found), ["device", "registers", "entries"])
        self.assertEqual(found["device"]["verdict"], "differs")
        self.assertEqual(found["device"]["seen"], "no XRC")
        self.assertEqual(found["registers"]["verdict"], "differs")
        self.assertEqual(found["registers"]["details"]["blueflame_bytes"], 0)
        self.assertEqual(found["entries"]["verdict"], "as expected", found["entries"])

    def test_another_vendor_cannot_be_asked_everything(self):
        found = self.answers("kind", LD_PRELOAD=preload("libwithout_thread_domains.so"))
        for name in ("registers", "entries", "arm", "arm-repeated", "scatter"):
            self.assertEqual(found[name]["verdict"], "could not be asked", found[name])
        self.assertEqual(found["device"]["verdict"], "differs")
        self.assertEqual(found["order"]["verdict"], "as expected", found["order"])

    def test_summary_progress_and_file(self):
        result = self.check("kind", "--only", "port", "--only", "arm")
        self.assertIn("[1/2] port: ", result.stderr)
        self.assertIn("[2/2] arm: ", result.stderr)
        self.assertIn("arm: as expected\n", result.stdout)
        self.assertIn("2 as expected, 0 differ, 0 could not be asked", result.stdout)
        self.assertIn("heddle-hardware-mlx5_0.json", result.stdout)
        with open(self.path("heddle-hardware-mlx5_0.json"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn(socket.gethostname(), text)
        listed = self.check("kind", "--list").stdout
        self.assertEqual([line.split()[0] for line in listed.splitlines()], CHECKS)

    def test_what_cannot_be(self):
        result = self.check("kind", "--only", "port", "--out", self.path("no", "such", "folder"), status=1)
        self.assertIn("could not be written", result.stderr)
        self.check("kind", "--only", "everything", status=2)
        self.check("kind", "--device", "mlx5_9", status=1)


if __name__ == "__main__":
    main()
