"""Arguments that several commands take: which problems, which device, which GPUs to compile for; make's variables."""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from grader.course.problem import Problem

FROM_MAKE = "--from-make"  # the Makefile writes it; nobody else's variables P or N change what a command does
# Make hands its variables on in the environment: neither a shell nor make expands anything in them. P is --problems,
# DEVICE is --device, and so on.
OPTIONS = (
    "P", "SUBMISSION", "CASE", "DEVICE", "SEED", "OUT", "TARGETS", "PROMPT", "TOKENS", "ROSTER", "COLUMN", "ONLY",
    "LANES", "ENGINE", "PARTITION", "GPUS", "ARRAY", "SHOW", "PROGRAM",
)  # fmt: skip
# Other names are in small letters.
SIZES = {"HQ": "Hq", "HKV": "Hkv", "NQ": "Nq", "BLOCK_Q": "BLOCK_Q", "BLOCK_K": "BLOCK_K"}
# The variable, its one word that counts ("" any word), and the option.
SWITCHES = ("COMPILE", "no", "--no-compile"), ("HINTS", "no", "--no-hints"), ("VERBOSE", "", "--verbose")


class BadArguments(Exception):
    """An argument that cannot be used; the text is one sentence for the person who typed it."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(f"{message}; `{self.prog} --help` lists the options")

    def take_from_make(self, argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
        """argv with make's variables, as far as this parser has such options, in place of --from-make."""
        if FROM_MAKE not in argv[:1]:
            return list(argv)
        named = [(name, "--problems" if name == "P" else f"--{name.lower()}") for name in OPTIONS]
        given = [(option, f"{option}={environment[name]}") for name, option in named if environment.get(name)]
        for name in environment.get("SIZES", "").split():  # N=8 as --size=N=8, ROWS=3 as --size=rows=3
            if value := environment.get(name):
                size = SIZES.get(name) or (name if len(name) == 1 else name.lower())
                given.append(("--size", f"--size={size}={value}"))
        for name, word, option in SWITCHES:
            if (value := environment.get(name)) and word in (value, ""):
                given.append((option, option))
        return [*(text for option, text in given if option in self._option_string_actions), *argv[1:]]


def choose_problems(text: str, problems: Mapping[str, Problem], labs: Mapping[str, Problem]) -> tuple[Problem, ...]:
    """`3,5-7,x1` -> the Problems p3, p5, p6, p7 and x1; a number alone is one of p's. Raises BadArguments."""
    every = {**problems, **labs}
    ids, chosen = list(every), []
    for part in text.lower().replace(",", " ").split() or [text]:
        low, _, high = part.partition("-")
        letters = low.rstrip("0123456789") or "p"
        low, high = (end if end in every else letters + end for end in (low, high or low))
        found = ids[ids.index(low) : ids.index(high) + 1] if low in every and high in every else []
        if not found:
            known = f"the problems are {', '.join(p.number for p in problems.values())}"
            known += f", the labs {', '.join(labs)}" if labs else ""
            raise BadArguments(f"there is no problem {part}; {known}, as in P=3 or P=3,5-7")
        chosen += found
    return tuple(every[id] for id in dict.fromkeys(chosen))


def check_sandbox() -> None:
    """Raise BadArguments where SANDBOX, which the Makefile hands on as GRADER_SANDBOX, is no word of ours."""
    if (word := os.environ.get("GRADER_SANDBOX", "")) not in ("", "none"):
        raise BadArguments(f"SANDBOX={word} is unknown: SANDBOX=none does without bubblewrap, no SANDBOX uses it")


def choose_device(asked: str | None) -> str:
    import torch

    if asked == "cuda" and not torch.cuda.is_available():
        raise BadArguments("DEVICE=cuda, but PyTorch sees no GPU here; leave DEVICE out to run on the CPU")
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def choose_targets(options: argparse.Namespace, device: str) -> tuple[str, ...]:
    """The names of the GPUs to compile for: a GPU that is here compiles by itself, unless others are asked for."""
    from grader.gpu.gpus import DEFAULT, GPUS

    if options.no_compile:
        return ()
    if options.targets is None:
        return () if device == "cuda" else DEFAULT
    names = tuple(dict.fromkeys(options.targets.replace(",", " ").split()))
    for name in names or (options.targets,):
        if name not in GPUS:
            raise BadArguments(f"there is no GPU {name!r} to compile for; the GPUs are {', '.join(GPUS)}")
    return names
