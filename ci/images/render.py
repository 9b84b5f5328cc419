# SPDX-License-Identifier: MIT
"""Render each stack's Dockerfile and apptainer.def from the templates and a family's tuning."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

import jinja2
import yaml

from busbar import site as sites

ROOT = Path(__file__).resolve().parents[2]
SITES = {"host": "local", "cuda": "h200x4", "rocm": "mi250x"}
"""The default site of each stack, for its manifest and family."""
FILES = ("Dockerfile", "apptainer.def")
LANE = "ucx-1.14"


def render(stack: str, site_name: str, template: str) -> str:
    """Return the text of one file."""
    site = sites.load(site_name)
    tuning = sites.environment(
        site, stack=stack, lane=LANE, buffers="host" if stack == "host" else "device"
    )
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        loader=jinja2.FileSystemLoader(ROOT / "containers" / "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    image = yaml.safe_load((ROOT / "containers" / "environment.yaml").read_text())
    base = (ROOT / "containers" / "base.env").read_text().split("\nBASE=")[1].strip()
    return environment.get_template(f"{template}.j2").render(
        stack=stack,
        site=site.name,
        family=site.family,
        base=base,
        lane=LANE,
        variables=image | tuning,
        labels={
            "org.opencontainers.image.title": f"busbar-{stack}",
            "org.opencontainers.image.description": f"MPI, UCX and benchmarks: stack {stack}",
            "org.opencontainers.image.version": version("busbar-hpc"),
            "busbar.licenses": "/opt/busbar/licenses",
            "busbar.stack": stack,
            "busbar.family": site.family,
        },
    )


def main(arguments: list[str] | None = None) -> None:
    """Render all stacks into the repository, or one stack for a site into a directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", choices=list(SITES), help="render this stack only")
    parser.add_argument("--site", help="use tuning and manifest of this site")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "containers", metavar="DIR", help="write into DIR"
    )
    args = parser.parse_args(arguments)
    for stack in [args.stack] if args.stack else SITES:
        directory = args.output / stack
        directory.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (directory / name).write_text(render(stack, args.site or SITES[stack], name))


if __name__ == "__main__":
    main()
