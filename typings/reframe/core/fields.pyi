from collections.abc import Callable

user_deprecation_warning: Callable[..., None]
