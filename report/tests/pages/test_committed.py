"""Every committed page and picture is what the committed files give; one that is not is named."""

import pytest

from grader.tests.support import thorough_but
from report import __main__ as command_line
from report.measuring.rows import BadTable
from report.pages import block_sparse, decode, packed, sinks, steps, training
from report.pages.template import TEMPLATES
from report.places import PUBLISHED, REPORT

SLOW = ("write_up", "orders", "sweep")  # kernels run while they are made, an order is simulated


@pytest.mark.parametrize("name", thorough_but([n for n in command_line.PAGES if n not in SLOW], command_line.PAGES))
def test_the_committed_page_is_what_is_written(name, capsys):
    assert command_line.main(["pages", name, "--check"]) == 0, "".join(capsys.readouterr())


@pytest.mark.parametrize("page", [block_sparse, packed, decode, training, sinks])
def test_a_page_of_nothing_says_so(page, tmp_path):
    assert "Nothing has been measured yet" in "".join(page.files(tmp_path).values())


def test_a_page_that_drifted_is_named_and_written_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "REPORT", tmp_path)
    (tmp_path / "STEPS.md").write_text((REPORT / "STEPS.md").read_text("utf-8").replace("1.09", "1.19"), "utf-8")
    assert command_line.main(["pages", "steps", "--check"]) == 1
    assert "STEPS.md is not what `python -m report pages` writes" in capsys.readouterr().out
    assert command_line.main(["pages", "steps"]) == 0 == command_line.main(["pages", "steps", "--check"])


def test_a_page_without_its_study_is_one_sentence(tmp_path):
    for path in PUBLISHED.glob("*.csv"):
        if path.name != "steps.csv":
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "block_sparse.json").symlink_to(PUBLISHED / "block_sparse.json")
    with pytest.raises(BadTable, match=r"steps\.csv holds no rows yet; `python -m report steps`"):
        steps.files(tmp_path)


def test_a_picture_of_another_matplotlib_is_not_compared(tmp_path):
    drawn, other = (f"<!-- Matplotlib v3.{minor}.0, https -->" for minor in (10, 11))
    (tmp_path / "a.svg").write_text(drawn + "<g/>", "utf-8")
    assert command_line.differs(tmp_path / "a.svg", drawn) and not command_line.differs(tmp_path / "a.svg", other)
    assert command_line.differs(tmp_path / "none.svg", drawn)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "STEPS.md.jinja is not there"),
        ("{{ nothing }}", "asks for what is not there: 'nothing'"),
        ("one\n{{ two", "line 2 of report/templates/STEPS.md.jinja is no Jinja"),
    ],
)
def test_a_fault_of_a_template_is_one_sentence(tmp_path, monkeypatch, capsys, text, said):
    folder = tmp_path / TEMPLATES.name
    folder.mkdir()
    if text is not None:
        (folder / "STEPS.md.jinja").write_text(text, "utf-8")
    monkeypatch.setattr("report.pages.template.TEMPLATES", folder)
    assert command_line.main(["pages", "steps"]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.startswith("report: ") and printed.count("\n") == 1


@pytest.mark.parametrize("argv", [["pages", "stepps"], ["stepps"]])
def test_what_is_not_there_is_one_sentence(argv, capsys):
    assert command_line.main(argv) == 2
    assert "there is no " in capsys.readouterr().err
