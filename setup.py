# SPDX-License-Identifier: MIT
"""What pyproject.toml cannot state: packages by pattern beside mapped ones, and the commit."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT_FILE = "busbar/commit.txt"


def record_commit(directory):
    """Write the commit of this tree below ``directory``; an sdist brings its own record."""
    commit = runpy.run_path("busbar/data.py")["commit"]()
    Path(directory, COMMIT_FILE).write_text(f"{commit}\n")


class BuildWithCommit(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            record_commit(self.build_lib)


class SdistWithCommit(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        record_commit(base_dir)


setup(
    packages=[
        *find_packages(include=["busbar", "busbar.*"]),
        "busbar.shipped.reframe_checks",
        "busbar.shipped.site",
    ],
    cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit},
)
