"""Which expressions change nothing, so that they may be left out where nothing reads their value."""

import ast
from collections.abc import Collection

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.definition import walk
from proximo.models.export.eject.known import PURE

CHANGE_NOTHING = frozenset((
    "zeros", "ones", "empty", "zeros_like", "ones_like", "empty_like", "full", "arange", "tensor", "array",
    "asarray", "partial", "int", "float", "bool", "str", "len", "tuple", "list", "dict", "set", "min", "max",
    "sum", "zip", "map", "range", "enumerate", "cast", "isinstance", "type", "getattr", "hasattr", "prod",
    "any", "all", "from_numpy", "as_tensor", "unbind", "cumsum", "flatten", "reshape", "view", "astype",
    "items", "values", "keys", "get", "copy", "join", "pick_device", "learning_noise", "torch_generator",
    "merge_over_ranks", "saved_buffers", "device", "dtype", "death_rule", "issubdtype", "PolicyNetwork",
    "NoMemory", "Setup", "Policy", "Learner", "Carry", "Spec", "float_view", "mask_methods", "startswith",
    "endswith", "isfinite", "sorted", "make_policy", "kwargs_of", "find_rom", "title", "ModuleList",
    "array_equal", "tolist", "flatnonzero", "find_spec", "numpy", "nonzero", "sticky_draws"))


def is_pure(node: ast.AST, records: Collection[str] = ()) -> bool:
    """Return whether an expression may be left out where nothing reads its value.

    Args:
        node: The expression.
        records: The names of the program's records, which may be made.
    """
    later = {id(part) for one in walk(node, ast.Lambda) for part in walk(one.body)}
    for one in walk(node):
        if id(one) in later:
            continue
        if isinstance(one, ast.Call) and called_name(one) not in CHANGE_NOTHING | PURE | {*records}:
            if isinstance(one.func, ast.Attribute) and ast.unparse(one.func) == "normalizer.start":
                continue
            return False
        if isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return False
    return True
