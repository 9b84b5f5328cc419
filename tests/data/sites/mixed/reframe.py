# SPDX-License-Identifier: MIT
"""ReFrame configuration, made from site.yaml."""

from pathlib import Path

from busbar.delivery.reframe import configuration

site_configuration = configuration(Path(__file__).parent)
