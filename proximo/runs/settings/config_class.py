"""What is wrong with the class of configurations that a program passes."""

from types import MemberDescriptorType
from typing import Any, get_args

from proximo.catalog import config_class, variant_of
from proximo.config import Config
from proximo.facts import field_types
from proximo.runs.settings.peer_names import ADVICE


def not_a_class(config: Any) -> list[str]:
    """Return a sentence if the argument `config` is neither None nor a class of configurations."""
    if config is None or (isinstance(config, type) and issubclass(config, Config)):
        return []
    return [f"config={config!r:.60} is not a class of configurations. Pass the subclass of proximo.Config that the run "
            "was started with, or leave it out."]


def problems_of_class(kind: type[Config]) -> list[str]:
    """Return a sentence for each default of a class that is not used, and for each field that replaces a method."""
    variant = config_class(variant_of(kind))
    if "__dataclass_fields__" not in vars(kind) and vars(kind).keys() & kind.__dataclass_fields__.keys():
        return [f"{kind.__name__} needs the decorator @dataclass(frozen=True), otherwise its defaults are not used."]
    wrong = [f"{kind.__name__}.{name} is a field, and {variant.__name__} computes {name} from other fields. Leave it "
             f"out.{ADVICE.get(name, '')}" for name in kind.__dataclass_fields__
             if name not in variant.__dataclass_fields__ and hasattr(variant, name)]
    for one in kind.__mro__[:kind.__mro__.index(variant)]:
        own = {name for name, x in vars(one).items() if not isinstance(x, MemberDescriptorType)}  # of slots=True
        for name in sorted((own & kind.__dataclass_fields__.keys()) - one.__annotations__.keys()):
            advice = f"For a schedule, name it {name}_at" if callable(vars(one)[name]) and f"{name}_at" in dir(kind) \
                else f"Write {name}: {_type_text(field_types(kind)[name])} = VALUE"
            wrong.append(f"{one.__name__}.{name} is not used, because it has no annotation of a type. {advice}.")
    return wrong


def _type_text(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
