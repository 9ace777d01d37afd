"""`--import MODULE` in every command: cells of the user are registered before the command runs."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from recurra.cli.options import Modules


def with_import_option(command: Callable[..., None]) -> Callable[..., None]:
    """The command with `--import MODULE`, which imports the module first."""
    given = signature(command)
    if "modules" in given.parameters:
        return command

    @wraps(command)
    def run(*arguments: Any, modules: list[str] | None = None, **named: Any) -> None:
        for module in modules or ():
            from recurra.cli.own_cells import import_named

            import_named(module)
        command(*arguments, **named)

    option = Parameter("modules", Parameter.KEYWORD_ONLY, default=None, annotation=Modules)
    described: Any = run
    described.__signature__ = given.replace(parameters=[*given.parameters.values(), option])
    described.__annotations__ = {**command.__annotations__, "modules": Modules}
    return run
