# SPDX-License-Identifier: MIT
"""Which checks would run on a site, in which environments, and why the others would not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar.errors import BusbarError
from busbar.site.environments import Choice


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


def matches(
    config: Mapping[str, Any], site_dir: Path, choice: Choice, checks: Sequence[Path]
) -> list[Match]:
    """Every check in ``checks``, by name.

    Raises ``BusbarError`` with ReFrame's words when a check file cannot be loaded.
    """
    command = [
        str(Path(sys.executable).with_name("reframe")),
        *("-C", str(site_dir / "reframe.py"), "--nocolor"),
        *(part for path in checks for part in ("-c", str(path))),
        *("--skip-system-check", "--skip-prgenv-check", "--warn-as-error", "--describe"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **choice.to_environment()},
    )
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise BusbarError(
            said[0] if said else (done.stderr or done.stdout).strip()[-400:],
            where=", ".join(map(str, checks)),
            hint="reframe --describe says more",
        )
    # Fixtures and checks of others ask in other ways; only ours are listed.
    described = json.loads(done.stdout[done.stdout.index("[\n") :])
    found = [_match(config, check) for check in described if check.get("asked_environs")]
    return sorted(found, key=lambda match: match.name)


def _match(config: Mapping[str, Any], check: Mapping[str, Any]) -> Match:
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
                lacks.append(f"{name} has not {_wanted(check['asked_environs'])}")
    return Match(
        name=check["display_name"],
        description=check["descr"],
        tags=tuple(sorted(check["tags"])),
        runs_in=tuple(pairs),
        reason="" if pairs else "; ".join(dict.fromkeys(lacks)),
    )


def _fits(wanted: Sequence[str], features: Sequence[str]) -> bool:
    """ReFrame's rule: one of the entries holds, each a conjunction of ``+feature``."""
    return any(
        entry == "*" or all(word.removeprefix("+") in features for word in entry.split())
        for entry in wanted
    )


def _wanted(entries: Sequence[str]) -> str:
    return " or ".join(entries)
