"""The entry point of the command `wgpu-ep`. Handles Ctrl-C during the first imports, too."""


def main() -> int:
    """Returns the command's exit code; see `cli.main`."""
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        return 130
