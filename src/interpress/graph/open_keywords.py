"""Give a forward that takes `**kwargs` one parameter per keyword, while torch.export looks at it.

torch.export cannot let the shapes of inputs vary that a forward takes by `**kwargs`: it looks for
them under two names.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn

from interpress.graph.example import Example


@contextlib.contextmanager
def named_keywords(model: nn.Module, example: Example) -> Iterator[None]:
    """Let the signature of the model's forward name all keyword inputs of an example."""
    signature = inspect.signature(model.forward)
    parameters = list(signature.parameters.values())
    unnamed = [name for name in example.kwargs if name not in signature.parameters]
    if not unnamed or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        yield
        return
    forward, keyword_only = model.forward, inspect.Parameter.KEYWORD_ONLY

    @functools.wraps(forward)
    def named(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    named.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:-1], *(inspect.Parameter(n, keyword_only) for n in unnamed)]
    )
    own: dict[str, Any] = vars(model)
    before = own.get("forward")
    own["forward"] = named
    try:
        yield
    finally:
        if before is None:
            del own["forward"]
        else:
            own["forward"] = before
