"""Functions called in a process of their own, so that their peak memory is known and a crash costs nothing else."""

import json
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

from lkgp.errors import InputError
from lkgp.machine import run_module

# The result of a failed call is {"failed": why}; it also has "limit", in seconds, if the call took longer than that.
Result = dict[str, Any]


def call_in_own_process(function: Callable[..., Result], arguments: dict[str, Any], timeout: float) -> Result:
    """Call a function of a module of `lkgp.studies` with keyword arguments that JSON can represent.

    timeout: seconds after which the process is ended
    """
    name = f"{function.__module__}:{function.__qualname__}"
    return run_module("lkgp.studies.processes", [name], json.dumps(arguments), timeout)


def main() -> None:
    """Call the function that the command line names with the arguments on standard input, and print its result."""
    try:
        print(json.dumps(pkgutil.resolve_name(sys.argv[1])(**json.loads(sys.stdin.read()))))
    except ModuleNotFoundError as missing:
        sys.exit(
            f"the package {missing.name} is not installed; install it with: pip install 'lkgp[bench,experiments]'."
        )
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
