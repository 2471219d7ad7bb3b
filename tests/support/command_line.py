"""Commands of `lkgp`, run in this process."""

from typer.testing import CliRunner

from lkgp.cli import app


def run(*arguments, code=0):
    """Run a command, which must end with this exit code; the result holds its output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + str(result.exception)
    return result
