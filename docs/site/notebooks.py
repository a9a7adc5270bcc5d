"""The notebooks as pages, with their saved output; they are not executed."""

import base64
import json
import re
from pathlib import Path
from typing import Any


def pages(folder: Path) -> dict[str, str | bytes]:
    """A page for each notebook of the folder, and its images, by their paths on the site."""
    files: dict[str, str | bytes] = {}
    for path in sorted(folder.glob("*.ipynb")):
        parts = [
            f"*This page is the notebook `notebooks/{path.name}`: run it with "
            "`pip install -e '.[notebook]' && jupyter lab notebooks`.*"
        ]
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(cells):
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(_separate_equations(text))
                continue
            parts.append(f"```python\n{text}\n```")
            for position, output in enumerate(_join_text(cell["outputs"])):
                name = f"notebooks/{path.stem}-{number}-{position}.png"
                parts.append(_format_output(output, name, files))
        heading, purpose, *rest = parts[1].split("\n\n", 2)  # the title and the purpose come first
        parts[:2] = [heading, purpose, parts[0], *rest]
        files[f"notebooks/{path.stem}.md"] = "\n\n".join(part for part in parts if part) + "\n"
    return files


def _separate_equations(text: str) -> str:
    """The text with displayed equations as separate blocks."""
    return re.sub(r"\$\$(.*?)\$\$", lambda match: f"\n$$\n{match[1].strip()}\n$$\n", text, flags=re.DOTALL)


def _join_text(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs, with consecutive printed texts joined."""
    merged: list[dict[str, Any]] = []
    for output in outputs:
        if merged and "text" in merged[-1] and "text" in output:
            merged[-1] = merged[-1] | {"text": [*merged[-1]["text"], *output["text"]]}
        else:
            merged.append(output)
    return merged


def _format_output(output: dict[str, Any], image: str, files: dict[str, str | bytes]) -> str:
    """One output as Markdown; an image is added to `files`."""
    data = output.get("data", {})
    if "image/png" in data:
        files[image] = base64.b64decode(data["image/png"])
        return f"![Output of the cell above]({Path(image).name})"
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return re.sub(r"\n\s*\n", "\n", html.replace(' border="1" class="dataframe"', ""))
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
