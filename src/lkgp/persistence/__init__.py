"""Files: atomic writes, the model file, and what goes into it."""

from lkgp.persistence.model_file import ModelContents

__all__ = ["ModelContents"]
