"""What users import: listed, documented, and importable from the top."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import headrace
from headrace.model import errors


def test_all_is_sorted_and_complete() -> None:
    imported_for_type_checkers = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(inspect.getsource(headrace)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace.")
        for alias in node.names
    }
    public = {name for name in dir(headrace) if not name.startswith("_") and is_ours(getattr(headrace, name))}
    assert set(headrace.__all__) == public == imported_for_type_checkers
    assert headrace.__all__ == sorted(headrace.__all__)


def is_ours(value: object) -> bool:
    return getattr(value, "__module__", "").startswith("headrace.")


def test_what_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(headrace, "nothing")


def test_every_exported_thing_says_what_it_is() -> None:
    for name in headrace.__all__:
        doc = inspect.getdoc(getattr(headrace, name))
        assert doc, f"{name} has no docstring"


def test_every_error_is_exported_and_in_the_tree_on_top_of_its_module() -> None:
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"HeadraceError"}
    assert drawn == defined
    assert defined <= set(headrace.__all__)


def test_the_version_is_that_of_the_distribution() -> None:
    pyproject = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    assert f'version = "{headrace.__version__}"' in pyproject


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(headrace.__file__).with_name("py.typed").exists()
