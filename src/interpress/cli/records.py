"""Commands that take records of options.

A record is a frozen dataclass whose fields are Typer options. A command names records in its
signature, and `expand_records` shows Typer one parameter per field:

    @app.command()
    @expand_records()
    def evaluate(model: ModelOptions, data: DataOptions, json: bool = False) -> None: ...

`interpress evaluate nets.py:VGG16 --data photos` then calls
`evaluate(model=ModelOptions(name=...), data=DataOptions(path=...), json=False)`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from types import NoneType
from typing import Any, get_args, get_type_hints

from interpress.errors import ArgumentError

Command = Callable[..., None]


def expand_records(
    *,
    defaults: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    keywords: Sequence[Parameter] = (),
) -> Callable[[Command], Command]:
    """Return a decorator that replaces every record in a command's signature by its fields.

    A parameter of type `Record | None` makes the required fields optional; the command gets None
    if they are not given. A record may have a class method `fill_in` that sets required fields from
    others, and then has `if_missing`: what to say if a required field is still missing.

    Args:
        defaults: By field, the defaults that differ from those of the record.
        fixed: By field, the values of fields that this command does not offer as options.
        keywords: The options that the command takes as `**keywords`; `--help` lists them first.
    """

    def decorate(command: Command) -> Command:
        records: dict[str, _Record] = {}
        parameters = list(keywords)
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            record = _Record.from_hint(parameter.annotation, fixed or {})
            if record is not None:
                records[parameter.name] = record
                parameters += record.parameters(defaults or {})
            elif parameter.kind is not Parameter.VAR_KEYWORD:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

        def call(**values: Any) -> None:
            built = {name: record.take_from(values) for name, record in records.items()}
            command(**built, **values)

        functools.update_wrapper(
            call, command, ("__module__", "__name__", "__qualname__", "__doc__")
        )
        # Typer reads both of these.
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate


@dataclass(frozen=True)
class _Record:
    """A record in the signature of a command."""

    kind: Any
    """The dataclass."""
    optional: bool
    fixed: Mapping[str, Any]

    @classmethod
    def from_hint(cls, hint: Any, fixed: Mapping[str, Any]) -> _Record | None:
        """Return the record that a type hint means, or None for an ordinary option."""
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
        if len(kinds) != 1 or not dataclasses.is_dataclass(kinds[0]):
            return None
        return cls(kinds[0], optional=kinds[0] is not hint, fixed=fixed)

    def parameters(self, defaults: Mapping[str, Any]) -> Iterator[Parameter]:
        """Yield one keyword parameter per field that is not fixed."""
        hints = get_type_hints(self.kind, include_extras=True)
        for field in dataclasses.fields(self.kind):
            if field.name in self.fixed:
                continue
            default = defaults.get(field.name, field.default)
            if default is dataclasses.MISSING:
                is_filled_in = self.optional or hasattr(self.kind, "fill_in")
                default = None if is_filled_in else Parameter.empty
            yield Parameter(
                field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
            )

    def take_from(self, values: dict[str, Any]) -> Any:
        """Return the record, and remove its fields from the values of the options."""
        fields = dataclasses.fields(self.kind)
        names = [field.name for field in fields]
        arguments = {n: self.fixed[n] if n in self.fixed else values.pop(n) for n in names}
        if hasattr(self.kind, "fill_in"):
            self.kind.fill_in(arguments)
        required = [f.name for f in fields if f.default is dataclasses.MISSING]
        if any(arguments[name] is None for name in required):
            if self.optional:
                return None
            raise ArgumentError(self.kind.if_missing)
        return self.kind(**arguments)
