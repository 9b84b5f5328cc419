# SPDX-License-Identifier: MIT
from typing import Any

class VarSpace:
    def inject(self, *arguments: Any) -> None: ...

def user_deprecation_warning(message: str, from_version: str = ...) -> None: ...
