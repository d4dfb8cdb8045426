"""The model report: `report/REPORT.md` and its pictures, out of text, solutions, kernels that run, and measured rows.

    python -m report.write_up            write them; kernels run in Triton's interpreter, half a minute
    python -m report.write_up --check    exit 1 where one is not what would be written

The text is REPORT.md.jinja; what it says in numbers is gathered in write_up_values.py.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import jinja2

from report import excerpts, measured, write_up_measured, write_up_runs
from report.flow import flowed
from report.table import BadTable
from report.write_up_values import values

HERE = Path(__file__).parent
TEMPLATE, PAGE, FIGURES = "REPORT.md.jinja", "REPORT.md", "figures"


def page(ladder, sweep):
    """The text of REPORT.md; raises jinja2.TemplateError, with a sentence, where the template is at fault."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    try:
        template = environment.get_template(TEMPLATE)
    except jinja2.TemplateNotFound:
        raise jinja2.TemplateError(f"report/{TEMPLATE} is not there, and it holds the report's text") from None
    except jinja2.TemplateSyntaxError as error:
        raise jinja2.TemplateError(f"line {error.lineno} of report/{TEMPLATE} is no Jinja: {error.message}") from None
    try:
        return flowed(template.render(values(ladder, sweep)))
    except jinja2.UndefinedError as error:
        raise jinja2.TemplateError(f"report/{TEMPLATE} asks for what is not there: {error.message}") from None


def drawn(ladder):
    """{file name: the SVG's text}"""
    from report import write_up_figures
    from report.drawing import save

    with tempfile.TemporaryDirectory() as folder:
        for name, figure in write_up_figures.drawn(ladder).items():
            save(figure, Path(folder) / name)
        return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}


def files():
    """{path: text} of all that the command writes."""
    ladder, sweep = write_up_measured.load_ladder(), measured.load(measured.PUBLISHED)
    found = {HERE / PAGE: page(ladder, sweep)}
    return found | {HERE / FIGURES / name: text for name, text in drawn(ladder).items()}


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m report.write_up", description="Write REPORT.md and its pictures.")
    parser.add_argument("--check", action="store_true", help="only say whether they are what would be written")
    check = parser.parse_args(argv).check
    try:
        made = files()
    except SyntaxError as error:
        print(f"report: {error.filename}, line {error.lineno}, is no Python: {error.msg}", file=sys.stderr)
        return 2
    except (OSError, RuntimeError, BadTable, jinja2.TemplateError, excerpts.NotThere, write_up_runs.Disagrees) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in stale:
            print(f"report/{path.relative_to(HERE)} is not what `python -m report.write_up` writes: run it, and commit")
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
    print(f"written: {', '.join(sorted(path.name for path in stale)) or 'nothing, all is as it would be'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
