"""Defaults of parameters that every call passes."""

from proximo.models.export.eject.calls import Call, argument_of
from proximo.models.export.eject.definition import Definition, Edit, Function, defaults, parameters


def default_edits(definition: Definition, function: Function, calls: list[Call]) -> list[Edit]:
    """Return the edits that leave out defaults which no call uses, and `| None` where no call passes None."""
    edits: list[Edit] = []
    given = defaults(function)
    for arg in [one for one in parameters(function) if one.arg in given]:
        passed = [(call, argument_of(call, function, arg.arg)) for call in calls]
        if arg.annotation is None or any(isinstance(one, str) or one is None for _, one in passed):
            break  # a parameter without a default cannot follow one that has it
        values = [call.scope.value(one) for call, one in passed]  # type: ignore[arg-type]
        hint = definition.segment(arg.annotation)
        if all(value is not None and value.value is not None for value in values):
            hint = hint.removesuffix(" | None")
        edits.append(Edit(definition.span(arg.annotation)[0], definition.span(given[arg.arg])[1], hint))
    return edits
