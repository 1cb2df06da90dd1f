"""Print what a shell completes `wgpu-ep` with: `eval "$(wgpu-ep completion bash)"` in ~/.bashrc."""

from __future__ import annotations

import argparse
import shlex

from ..records import dataclass
from ._output import show_json

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Completed:
    """A subcommand's shell completion. `words` are the choices of positional arguments; `options` are (name, help)."""

    name: str
    summary: str
    words: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="for bash and zsh `eval` it, for fish pipe it to `source`")


def main(args: argparse.Namespace) -> int:
    text = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]([_described(*it) for it in args.parsers()])
    if args.json:
        show_json({"shell": args.shell, "script": text})
    else:
        print(text)
    return 0


def _described(name: str, summary: str, parser: argparse.ArgumentParser) -> Completed:
    words: list[str] = []
    options = []
    for action in parser._actions:
        if action.option_strings:
            options.append((max(action.option_strings, key=len), (action.help or "").partition(";")[0]))
        elif action.choices:
            words += [str(it) for it in action.choices]
    return Completed(name, summary, tuple(words), tuple(options))


def _bash(found: list[Completed]) -> str:
    cases = "\n".join(
        f"    {it.name}) words={shlex.quote(' '.join([*it.words, *(name for name, _ in it.options)]))} ;;"
        for it in found
    )
    return f"""_wgpu_ep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words
  if [ "$COMP_CWORD" = 1 ]; then
    words={shlex.quote(" ".join(it.name for it in found))}
  else
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _wgpu_ep wgpu-ep"""


def _zsh(found: list[Completed]) -> str:
    named = "\n".join(f"    {shlex.quote(f'{it.name}:{it.summary}')}" for it in found)
    cases = "\n".join(
        "    {}) _arguments {} ;;".format(
            it.name,
            " ".join(
                [
                    *(shlex.quote(f"{name}[{_bracketed(text)}]") for name, text in it.options),
                    *([shlex.quote(f"1: :({' '.join(it.words)})")] if it.words else []),
                    "'*:file:_files'",
                ]
            ),
        )
        for it in found
    )
    return f"""#compdef wgpu-ep
_wgpu_ep() {{
  local -a names=(
{named}
  )
  if (( CURRENT == 2 )); then
    _describe command names
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{cases}
  esac
}}
compdef _wgpu_ep wgpu-ep"""


def _fish(found: list[Completed]) -> str:
    first = "__fish_use_subcommand"
    lines = []
    for it in found:
        lines.append(f"complete -c wgpu-ep -n {first} -f -a {it.name} -d {shlex.quote(it.summary)}")
        within = f"-n '__fish_seen_subcommand_from {it.name}'"
        lines += [
            f"complete -c wgpu-ep {within} -l {name.removeprefix('--')} -d {shlex.quote(text)}"
            for name, text in it.options
        ]
        if it.words:
            lines.append(f"complete -c wgpu-ep {within} -f -a {shlex.quote(' '.join(it.words))}")
    return "\n".join(lines)


def _bracketed(text: str) -> str:
    """Escapes help text for the brackets of zsh."""
    return text.replace("[", "(").replace("]", ")").replace(":", "\\:")
