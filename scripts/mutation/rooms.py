# SPDX-License-Identifier: BSD-2-Clause
"""The rooms of the source: which files, which tests concern them, and what is built for these."""

from typing import NamedTuple

PROTOCOL_TESTS = r"^(unit|protocol|fi)\."
SOFTHCA_TESTS = r"^(unit|softhca)\.|^cli\.(fabric|directory|rdma|run)_test$"
ENDPOINT_TESTS = r"^(unit|endpoint)\."
LIBRARY_TESTS = r"^(unit|endpoint|protocol|fi)\."  # of what both endpoints and the protocol use
DEVICE = ("softhca", "softhca_cli")
UNIT = ("softhca_unit_tests_cases", "softhca_engine_unit_tests_cases")
SOFTHCA = (*DEVICE, *UNIT, "softhca_test_cases", "dlopen_late", "doorbell_count", "cli_holder")
PROTOCOL = (
    *DEVICE, "without_thread_domains", "heddle_fi", "protocol_unit_tests_cases", "memory_unit_tests_cases",
    "protocol_test_cases", "fi_test_cases",
)  # fmt: skip
PROVIDER = (*PROTOCOL, "provider_unit_tests_cases")
CLI = (*DEVICE, "heddle_cli", "heddle_fi", "cli_unit_tests_cases", "cli_holder")
ENDPOINT = (
    *DEVICE, "heddle_unit_tests_cases", "endpoint_test_cases", "fidelity_test_cases",
    "endpoint_threads_test_cases", "without_thread_domains_test_cases",
    *(f"example_{name}" for name in ("categories", "devices", "direct_queues", "endpoints", "queues")),
)  # fmt: skip


class Room(NamedTuple):
    name: str
    files: tuple  # patterns of Path.glob: sources, headers
    tests: str  # a regular expression of names in ctest
    targets: tuple  # of ninja


def room(folder, tests, targets):
    return Room(folder.removeprefix("src/"), (f"{folder}/*.cc", f"{folder}/*.h"), tests, targets)


ROOMS = (
    *(room(f"src/protocol/{part}", PROTOCOL_TESTS, PROTOCOL) for part in (
        "tag", "eager", "rndv", "reuse", "rma", "ring", "core", "wire", "wireup", "transport", "tupleq",
        "common")),
    room("src/protocol", PROTOCOL_TESTS, PROTOCOL),
    room("src/memory", PROTOCOL_TESTS, PROTOCOL),
    room("src/provider", PROTOCOL_TESTS, PROVIDER),
    *(room(f"src/softhca/{part}", SOFTHCA_TESTS, SOFTHCA) for part in (
        "engine", "uverbs", "device", "device/memory", "nldev", "preload", "base", "view")),
    *(room(f"src/cli/{part}", r"^cli\.|^unit\.", CLI) for part in ("common", "heddle", "softhca")),
    room("src/endpoint", LIBRARY_TESTS, (*ENDPOINT, *PROTOCOL)),
    room("src/verbs", LIBRARY_TESTS, (*ENDPOINT, *PROTOCOL)),
    Room("post", ("src/post/*.cc", "include/heddle/post/*.h"), ENDPOINT_TESTS, ENDPOINT),
)  # fmt: skip
