"""Where the command `wgpu-ep` starts: a Ctrl-C while its first modules are imported ends it like any later one."""


def main() -> int:
    """The command's exit code; see `cli.main`."""
    try:
        from .cli import main

        return main()
    except KeyboardInterrupt:
        return 130
