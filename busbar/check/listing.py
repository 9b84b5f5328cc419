# SPDX-License-Identifier: MIT
"""Which checks would run on a site, in which environments, and why the others would not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from busbar.delivery.environments import Choice
from busbar.errors import BusbarError


@dataclass(frozen=True)
class Match:
    """One check against the environments and partitions of a site."""

    name: str
    """As ReFrame shows it: ``pt2pt %bench=osu_bw``."""
    description: str
    tags: tuple[str, ...]
    runs_in: tuple[str, ...]
    """``partition+environment``."""
    reason: str = ""
    """Why it runs nowhere."""

    @property
    def test(self) -> str:
        """The name without its parameters."""
        return self.name.split(" ")[0]


class Describing:
    """ReFrame at work on a description of checks, which takes seconds: as long as they run."""

    def __init__(self, site_dir: Path, choice: Choice, checks: Sequence[Path]) -> None:
        self._checks = checks
        command = [
            *(sys.executable, "-P", "-c", "from reframe.frontend.cli import main; main()"),
            *("-C", str(site_dir / "reframe.py"), "--nocolor"),
            *(part for path in checks for part in ("-c", str(path))),
            *("--skip-system-check", "--skip-prgenv-check", "--warn-as-error", "--describe"),
        ]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **choice.to_environment()},
        )

    @cached_property
    def everything(self) -> list[dict[str, Any]]:
        """Every check as ReFrame describes it, whatever the site has.

        Raises ``BusbarError`` with ReFrame's words when a check file cannot be loaded.
        """
        out, errors = self._process.communicate()
        if self._process.returncode:
            said = [line for line in out.splitlines() if "ERROR" in line]
            raise BusbarError(
                said[0] if said else (errors or out).strip()[-400:],
                where=", ".join(map(str, self._checks)),
                hint="reframe --describe says more",
            )
        # Checks may print while they are loaded, before the list.
        document = re.split(r"^(?=\[\]?$)", out, maxsplit=1, flags=re.MULTILINE)[-1]
        described: list[dict[str, Any]] = json.loads(document)
        return described

    @property
    def ours(self) -> list[dict[str, Any]]:
        """Fixtures and checks of others ask in other ways; only ours are listed."""
        return [check for check in self.everything if check.get("asked_environs")]

    def matches(self, config: Mapping[str, Any]) -> list[Match]:
        """Every check against the environments of ``config``, by name."""
        return sorted((match(config, check) for check in self.ours), key=lambda found: found.name)


def describe(site_dir: Path, choice: Choice, checks: Sequence[Path]) -> list[dict[str, Any]]:
    """Every check of ours in ``checks`` as ReFrame describes it, whatever the site has."""
    return Describing(site_dir, choice, checks).ours


def match(config: Mapping[str, Any], check: Mapping[str, Any]) -> Match:
    """One described check against the environments and partitions of a configuration."""
    system = config["systems"][0]
    environments = {each["name"]: each for each in config["environments"]}
    pairs: list[str] = []
    lacks: list[str] = []
    for partition in system["partitions"]:
        if not _fits(check["asked_systems"], partition["features"]):
            lacks.append(
                f"partition {partition['name']} has not {_wanted(check['asked_systems'])}"
            )
            continue
        for name in partition["environs"]:
            if _fits(check["asked_environs"], environments[name]["features"]):
                pairs.append(f"{partition['name']}+{name}")
            else:
                lacks.append(_lack(environments[name], check["asked_environs"]))
    return Match(
        name=check["display_name"],
        description=check["descr"],
        tags=tuple(sorted(check["tags"])),
        runs_in=tuple(pairs),
        reason="" if pairs else "; ".join(dict.fromkeys(lacks)),
    )


def lines(found: Sequence[Match]) -> list[str]:
    """What ``busbar check --list`` prints: what would run, then what would not and why."""
    runs = [f"{m.name} [{', '.join(m.tags)}]: {', '.join(m.runs_in)}" for m in found if m.runs_in]
    return runs + [f"not {m.name}: {m.reason}" for m in found if not m.runs_in]


def _fits(wanted: Sequence[str], features: Sequence[str]) -> bool:
    """ReFrame's rule: one of the entries holds, each a conjunction of ``+feature`` and
    ``-feature``."""
    return any(
        entry == "*"
        or all((word[1:] in features) is word.startswith("+") for word in entry.split())
        for entry in wanted
    )


def _lack(environment: Mapping[str, Any], wanted: Sequence[str]) -> str:
    """What an environment has not, and why where that is known."""
    known = environment["extras"].get("lacking", {})
    whys = {known[w[1:]] for entry in wanted for w in entry.split() if w[1:] in known}
    return ": ".join([f"{environment['name']} has not {_wanted(wanted)}", *sorted(whys)])


def _wanted(entries: Sequence[str]) -> str:
    return " or ".join(entries)
