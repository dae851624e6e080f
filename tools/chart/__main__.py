"""``python -m tools.chart generate`` writes what the chart holds twice; ``verify`` says what is not as it would be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .readme import readme_text
from .schema import schema_text
from .values import BadValues, read

REPOSITORY = Path(__file__).parents[2]
CHART = Path("charts/headrace")
_CRD_COPIES = CHART / "files" / "crds"


def made(repository: Path = REPOSITORY) -> dict[Path, str]:
    """What each made file holds, by its path in the repository."""
    values = read((repository / CHART / "values.yaml").read_text())
    crds = {_CRD_COPIES / source.name: source.read_text() for source in sorted((repository / "crds").glob("*.yaml"))}
    return crds | {
        CHART / "values.schema.json": schema_text(values),
        CHART / "README.md": readme_text((repository / CHART / "README.template.md").read_text(), values),
    }


def differences(repository: Path = REPOSITORY) -> list[str]:
    """The files that are not as they would be made, or that would not be made at all."""
    wanted = made(repository)
    changed = [
        path
        for path, text in wanted.items()
        if not (repository / path).exists() or (repository / path).read_text() != text
    ]
    return sorted(str(path) for path in [*changed, *_strays(repository, wanted)])


def write(repository: Path = REPOSITORY) -> list[str]:
    """Make them, and tell which of them changed."""
    changed = differences(repository)
    wanted = made(repository)
    for path, text in wanted.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    for path in _strays(repository, wanted):
        (repository / path).unlink()
    return changed


def _strays(repository: Path, wanted: dict[Path, str]) -> list[Path]:
    copies = (path.relative_to(repository) for path in (repository / _CRD_COPIES).glob("*"))
    return [path for path in copies if path not in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description="What the chart holds twice.")
    parser.add_argument("verb", choices=("generate", "verify"))
    verb = parser.parse_args().verb
    try:
        found = write() if verb == "generate" else differences()
    except BadValues as error:
        print(f"{CHART}/values.yaml: {error}", file=sys.stderr)
        return 1
    if verb == "generate":
        print("\n".join(f"wrote {path}" for path in found) or "nothing has changed")
    elif found:
        print(f"{', '.join(found)} is not as it would be made: run `make generate` and commit it.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
