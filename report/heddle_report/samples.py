# SPDX-License-Identifier: BSD-2-Clause
"""The folder that a run leaves behind.

    run.json           when, on what, how: the run's own facts
    samples/KEY.json   of an experiment: its commands, how long they took, how they ended
    samples/KEY.jsonl  what they printed: a line of JSON for each configuration, with every sample
    samples/KEY.log    what they said meanwhile

KEY.json is written last, in one step: an experiment is there whole or not at all.
"""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

FORMAT = 1


class Broken(Exception):
    """A file that cannot be what it should be; the text names it and says why."""


@dataclass
class Outcome:
    """What came of one experiment. status: "done", "failed" or "skipped" (`reason` says why). Rows of one of
    several runs have its number, from 0, in `run`."""
    key: str
    status: str
    commands: list = field(default_factory=list)  # each a list of words, as they were run
    run_ends: list = field(default_factory=list)  # of several runs: where each ends in the rows' file, in bytes
    reason: str = ""
    mode: str = ""
    seconds: float = 0
    started: str = ""
    rows: list = field(default_factory=list)
    raw: bytes = b""


def write(path, text):
    """All of it or nothing."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def save_run(folder, facts):
    write(folder / "run.json", json.dumps({"format": FORMAT, **facts}, indent=1) + "\n")


def save_outcome(folder, outcome):
    """Its rows are in samples/KEY.jsonl already."""
    write(folder / "samples" / f"{outcome.key}.json", json.dumps(
        {"format": FORMAT, "key": outcome.key, "status": outcome.status, "mode": outcome.mode,
         "commands": outcome.commands, "run_ends": outcome.run_ends, "reason": outcome.reason,
         "seconds": round(outcome.seconds, 3), "started": outcome.started}, indent=1) + "\n")


def load_json(path):
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Broken(f"{path} is not there") from None
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Broken(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise Broken(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(found, dict):
        raise Broken(f"{path}: not an object of JSON")
    if found.get("format") != FORMAT:
        raise Broken(f"{path}: format {found.get('format')!r}; this heddle reads {FORMAT}")
    return found


def load_run(folder):
    folder = Path(folder)
    if not folder.is_dir():
        raise Broken(f"{folder} is no folder; `heddle reproduce --out {folder}` makes one")
    return load_json(folder / "run.json")


def parse_rows(raw, path, needs):
    """Lines of JSON, each an object with the fields of `needs`; or one object over many lines."""
    rows = []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Broken(f"{path} is not UTF-8 text") from None
    lines = text.splitlines()
    if text.startswith("{\n"):
        lines = [" ".join(lines)]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise Broken(f"{path}, line {number}: not JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise Broken(f"{path}, line {number}: not an object of JSON")
        missing = [name for name in needs if name not in row]
        if missing:
            raise Broken(f"{path}, line {number}: has no {', '.join(missing)}")
        rows.append(row)
    if not rows:
        raise Broken(f"{path} has no lines")
    return rows


def parse_runs(raw, ends, path, needs):
    """The rows of all runs, with the number of each. Without ends there is one run."""
    if not ends:
        return parse_rows(raw, path, needs)
    if ends != sorted(ends) or ends[-1] != len(raw):
        raise Broken(f"{path} has {len(raw)} bytes, and its runs end at {', '.join(map(str, ends))}")
    return [{**row, "run": number} for number, (begin, end) in enumerate(zip([0, *ends], ends))
            for row in parse_rows(raw[begin:end], path, needs)]


def check(experiment, rows):
    """Whether it can be made sense of: else one of the errors that load_outcome() knows."""
    for point in experiment.points(rows):
        for value in (point.value, point.low, point.high, point.paper):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{value} of {', '.join(map(str, point.key))}")
    experiment.panels(rows)
    experiment.verdict(rows)


def load_outcome(folder, experiment):
    """None: it has not been run. What is broken is an outcome that failed, and says so."""
    path = Path(folder) / "samples" / f"{experiment.key}.json"
    if not path.exists():
        return None
    try:
        found = load_json(path)
        fields = {name: found.get(name) for name in ("status", "mode", "commands", "reason",
                                                     "seconds", "started")}
        outcome = Outcome(experiment.key, **fields, run_ends=found.get("run_ends") or [])
        if outcome.status not in ("done", "failed", "skipped"):
            raise Broken(f"{path}: status {outcome.status!r}")
        if outcome.status == "done":
            rows = path.with_suffix(".jsonl")
            try:
                outcome.raw = rows.read_bytes()
            except OSError as error:
                raise Broken(f"{rows} cannot be read: {error.strerror}") from None
            outcome.rows = parse_runs(outcome.raw, outcome.run_ends, rows, experiment.needs)
            check(experiment, outcome.rows)
    except Broken as error:
        return Outcome(experiment.key, "failed", reason=str(error))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
        return Outcome(experiment.key, "failed", reason=f"{path.with_suffix('.jsonl')}: cannot be "
                       f"made sense of ({type(error).__name__}: {error})")
    return outcome
