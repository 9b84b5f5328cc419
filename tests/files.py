# SPDX-License-Identifier: MIT
"""Files and programs that tests write."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import yaml

# A check that leaves readings. Where they are below their band its repetition does not end.
# The report of many readings takes a while.
LEAVES = """
import hashlib, json, os
import reframe as rfm
from reframe.core.builtins import run_before, sanity_function, variable
import reframe.utility.sanity as sn

@rfm.simple_test
class leaves(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "sh"
    keep_files = ["results.json"]
    outcome_digest = variable(str, value="", loggable=True)

    @run_before("run")
    def set_command(self):
        row = {{"check": self.name, "verdict": "{verdict}", "metric": "bandwidth", "pair": "ring",
               "gb_per_s": 3.0 if "{verdict}" == "pass" else 1.0,
               "limit": 9.0, "low": 2.0, "typical": 3.0, "high": 4.0}}
        outcome = {{"check": self.name, "lane": "x", "causes": [], "notes": [],
                   "results": [{{**row, "bytes": 8 + n}} for n in range({rows})],
                   "partition": self.current_partition.name,
                   "environment": self.current_environ.name}}
        text = json.dumps(outcome)
        self.outcome_digest = hashlib.sha256(text.encode()).hexdigest()
        with open(os.path.join(self.stagedir, "left.json"), "w") as file:
            file.write(text)
        again = "again" in self.stagedir
        self.executable_opts = ["-c", "'" + ("sleep 600 & wait" if again else
                                "cp left.json results.json") + "'"]

    @sanity_function
    def is_in_its_band(self):
        return sn.assert_true("{verdict}" == "pass", msg="below its band")
"""


def written(file: Path, text: str = "") -> Path:
    """A file, in directories that are made if they are missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def executable(file: Path, script: str) -> Path:
    """A program in the language of the shell."""
    written(file, f"#!/bin/sh\n{script}\n").chmod(0o755)
    return file


def read_table(path: Path) -> Any:
    """Read a table of cases by libyaml, which takes a tenth of the time."""
    return yaml.load(path.read_text(), yaml.CSafeLoader)


@cache
def syntax(text: str) -> ast.Module:
    """Parse a module once for all rules that look at it."""
    return ast.parse(text)
