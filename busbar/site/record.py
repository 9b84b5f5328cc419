# SPDX-License-Identifier: MIT
"""What all records of a site have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from busbar.boundary import refuse_command, texts


class Record(BaseModel):
    """A frozen record that refuses unknown keys, and text that a job script would execute."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("*", mode="after")
    @classmethod
    def _holds_no_command(cls, value: Any) -> Any:
        for text in texts(value):
            refuse_command(text)
        return value
