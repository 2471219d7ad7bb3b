"""What is wrong with a model file, said in one sentence that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager

from lkgp.errors import FileError
from lkgp.persistence.atomic import first_line


class DamageError(Exception):
    """What is wrong, as half a sentence; `naming_the_file` completes it."""


@contextmanager
def naming_the_file(source: str) -> Iterator[None]:
    """While a model is rebuilt from the contents of a file: a `FileError` that names the file, whatever goes wrong."""
    try:
        yield
    except FileError as error:
        raise FileError(f"{source}: {error}") from None
    except DamageError as damage:
        raise FileError(f"{source} is damaged: {damage}; save the model again.") from None
    except MemoryError:
        raise  # of the machine, not of the file: nothing is built before its size is checked against the file
    except Exception as error:
        if "can't allocate memory" in str(error):  # torch has no error class of its own for a lack of memory
            raise
        what = f"{type(error).__name__}: {first_line(error)}"
        raise FileError(
            f"{source} is damaged: its entries do not make a model ({what}); save the model again."
        ) from None
