"""An extension of Griffe: examples in docstrings are code, where Markdown would quote them."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences each example, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes the docstring of `obj`."""
        del kwargs
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub("```pycon\n\\g<0>\n```", obj.docstring.value)
