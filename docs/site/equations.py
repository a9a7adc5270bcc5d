"""Equations as MathML, which browsers show without scripts or additional fonts."""

import html as escapes
import re

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def as_mathml(html: str) -> str:
    """The page with its equations, as arithmatex marks them, converted to MathML."""

    def convert_match(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        return convert(escapes.unescape(match[3]).strip(), display=display)

    return EQUATION.sub(convert_match, html)
