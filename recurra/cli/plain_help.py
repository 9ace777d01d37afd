"""Help pages without type noise: no `<bool>` beside flags, INT, FLOAT and TEXT instead of `<int range>`."""

from functools import partial
from typing import Any

from typer.core import TyperCommand

TYPE_NAMES = {bool: "", int: "INT", float: "FLOAT", str: "TEXT"}


class PlainHelpCommand(TyperCommand):
    """A command whose options show plain type names."""

    def get_params(self, ctx: Any) -> list[Any]:
        return simplify_types(super().get_params(ctx))


def simplify_types(parameters: list[Any]) -> list[Any]:
    """Set the type column of the help page, where the option has no metavar of its own."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # the name of an argument says what it is
            shown = parameter.metavar or parameter.name.upper()
            parameter.get_usage_pieces = partial(_usage, shown if parameter.required else f"[{shown}]")
        elif parameter.metavar is None:
            annotation: Any = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            parameter.metavar = "" if parameter.is_flag else TYPE_NAMES.get(annotation)
    return parameters


def _usage(name: str, ctx: Any) -> list[str]:
    """What the usage line shows for an argument."""
    return [name]
