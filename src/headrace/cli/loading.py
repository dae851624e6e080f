"""Finding the app that a command line names."""

from __future__ import annotations

import importlib
import os
import sys

from headrace.app.headrace import Headrace
from headrace.model.errors import InvalidInput


def load_app(spec: str) -> Headrace:
    """The `Headrace` object that ``module:attribute`` names."""
    module_name, colon, attribute = spec.partition(":")
    if not module_name or not colon or not attribute:
        raise InvalidInput("APP", f"{spec!r} is not module:attribute; write for example myproject.tasks:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
        # Handler processes import the same modules.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module exists; what it imports does not
        raise InvalidInput(
            "APP", f"there is no module {module_name!r}; run the command from your project's folder"
        ) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Headrace):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise InvalidInput("APP", f"{attribute!r} in {module_name} is {what}, not a Headrace app")
    return found
