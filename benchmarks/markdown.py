"""Tables as Markdown has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: range = range(0)) -> str:
    """A table; the columns in ``right`` hold figures and are aligned to the right."""
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---:" if index in right else "---" for index in range(len(header))) + "|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
