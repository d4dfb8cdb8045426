"""The command of the report: python -m report, and what else it measures, writes and compares.

    python -m report [OPTIONS]               what `make report` does: the sweep, then its page and pictures
    python -m report STUDY [OPTIONS]         measure a study: sweep, ladder, steps, block_sparse, packed or orders
    python -m report pages [NAME ...]        write pages and pictures of committed rows; --check, --of FOLDER
    python -m report compare FRESH [OTHER]   did a kernel become slower between two sweeps?
    python -m report shared_memory           compile for GPUs that need not be here, and write shared_memory.csv
    python -m report sample PATTERN          a block-sparse pattern: its map, a file of it; or `every` one
    python -m report saved FILE ...          every kernel on saved patterns: right or not, counted work, time on a GPU
    python -m report backward                the fast backward pass beside others; --ideas: with and without each idea
    python -m report decode                  decode beside cuDNN and a copy: pages, sink logits, pieces of a fixed size
    python -m report training                train a tiny transformer with the course's operator and with PyTorch's
    python -m report sinks                   our small model's loss past its training, by masks with and without sinks
    python -m report vit_example             a vision transformer's attention over blocks, run and counted
    python -m report order_model             orders of programs in the model of a GPU with several dies, at any shape

Exit status 0 done, 1 not as it should be, 2 bad arguments or files, 130 stopped; --help after a command lists options.
"""

import argparse
import re
import sys
from importlib import import_module
from pathlib import Path

from report.measuring import command, runner
from report.measuring.study import find_study
from report.places import PUBLISHED, REPORT, Refused

STUDIES = ("sweep", "ladder", "steps", "block_sparse", "packed", "orders")
PAGES = {
    "overview": "report.pages.overview",
    "sweep": "report.pages.sweep",
    "steps": "report.pages.steps",
    "block_sparse": "report.pages.block_sparse",
    "packed": "report.pages.packed",
    "backward": "report.pages.backward",
    "decode": "report.pages.decode",
    "training": "report.pages.training",
    "sinks": "report.pages.sinks",
    "orders": "report.pages.orders",
    "tile_shapes": "report.pages.tile_shapes",
    "write_up": "report.write_up.page",
}
OTHERS = {
    "compare": "report.pages.compare",
    "shared_memory": "report.counting.shared_memory",
    "sample": "report.arms.sample",
    "saved": "report.arms.saved",
    "backward": "report.arms.backward",
    "decode": "report.arms.decode",
    "training": "report.arms.training",
    "sinks": "report.arms.sinks",
    "vit_example": "report.counting.vit_example",
    "order_model": "report.pages.order_command",
}


def sweep_and_page(argv, child):
    """The sweep, quick where there is no GPU, then its page."""
    import torch

    if not torch.cuda.is_available() and "--quick" not in argv:
        print("PyTorch sees no GPU here: a quick sweep on the CPU, to see the tables and plots work", file=sys.stderr)
        argv = [*argv, "--quick"]
    folder = command.run(find_study("sweep"), argv, child)
    return pages(["sweep", "--of", str(folder)]) if folder else 0


def pages(argv):
    """Write pages and their pictures, or with --check say which are not what would be written."""
    parser = argparse.ArgumentParser(prog="python -m report pages", description="Write pages and their pictures.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PAGES)} (default: all)")
    parser.add_argument("--check", action="store_true", help="only say which are not what would be written")
    parser.add_argument("--of", type=Path, metavar="FOLDER", help="of the sweep in that folder, into it")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in PAGES]:
        raise Refused(f"there is no page {unknown[0]!r}; the pages are {', '.join(PAGES)}")
    target, names = REPORT, options.names or list(PAGES)
    if options.of and options.of != PUBLISHED:
        names, target = ["sweep"], options.of if options.of.suffix != ".csv" else options.of.parent
    made = {}
    for name in names:
        files = import_module(PAGES[name]).files
        made |= files(options.of) if name == "sweep" and options.of else files()
    stale = {name: text for name, text in made.items() if differs(target / name, text)}
    if options.check:
        for name in stale:
            print(f"{target.name}/{name} is not what `python -m report pages` writes: run it, and commit")
        return 1 if stale else 0
    for name, text in stale.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8", newline="\n")
    remove_pictures_without_page(target)
    print(f"written into {target}: {', '.join(sorted(stale)) or 'nothing, all is as it would be'}")
    return 0


def differs(path, text):
    """Whether a file is not that text; a picture of another matplotlib than this one's is as it should be."""
    kept = path.read_text(encoding="utf-8") if path.is_file() else ""
    versions = [re.search(r"Matplotlib v([^,]*),", drawn) for drawn in (kept, text)]
    other_matplotlib = path.suffix == ".svg" and all(versions) and versions[0][1] != versions[1][1]
    return kept != text and not other_matplotlib


def remove_pictures_without_page(target):
    linked = set(re.findall(r"\(figures/([^)]+)\)", "".join(page.read_text("utf-8") for page in target.glob("*.md"))))
    for picture in target.glob("figures/*.svg"):
        if picture.name not in linked:
            picture.unlink()


def act(argv, child):
    """Do what is asked; the exit status."""
    name, rest = argv[0] if argv else "", argv[1:]
    if name in ("-h", "--help"):
        print(__doc__)
        return 0
    if not name or name.startswith("-"):
        return sweep_and_page(argv, child)
    if name in STUDIES:
        command.run(find_study(name), rest, child)
        return 0
    if name == "pages":
        return pages(rest)
    if name in OTHERS:
        return import_module(OTHERS[name]).main(rest)
    raise Refused(f"there is no {name!r}; `python -m report --help` lists what there is")


def main(argv, child=runner.COMMAND):
    """The exit status; what cannot go on is one sentence. child: what starts the process that measures."""
    try:
        return act(argv, child)
    except (Refused, RuntimeError) as error:
        sentence = str(error)
        if "no GPU" in sentence and "needs none" not in sentence:
            sentence += "; --quick needs none"
    except ModuleNotFoundError as error:
        sentence = f"{error.name} is missing; pip install {error.name}"
    except SyntaxError as error:
        sentence = f"{error.filename}, line {error.lineno}, is no Python: {error.msg}"
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        sentence = f"a file could not be read or written: {error.strerror}{where}; {command.KEPT}"
    except KeyboardInterrupt:
        print(f"\nreport: stopped; {command.KEPT}", file=sys.stderr)
        return 130
    print(f"report: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
