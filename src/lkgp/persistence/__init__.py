"""Files: atomic writes, the model file and its contents."""

from lkgp.persistence.model_file import ModelContents

__all__ = ["ModelContents"]
