"""Whose submission is whose, where a student chooses names, numbers and dates so that it might be another's."""

import io
import os
import zipfile

import pytest

from grader.classroom import claims, intake, names, roster, submitters
from grader.classroom.entries import BadFolder
from grader.kinds.registry import PROBLEMS
from grader.tests.classroom import quick_class

P1, P2 = PROBLEMS["p1"].module, PROBLEMS["p2"].module
NUMBERED = "Student,ID,SIS User ID\nAlice,1001,s1\nBob,1003,s3\nMallory,2002,s2\n"
UNNUMBERED = "id,name\ns1,Alice\ns2,Mallory\ns3,Bob\n"


def put(tmp_path, entries):
    """entries: {name: the text of P1, for a folder or a zip, or {module: text}}."""
    for name, text in entries.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".zip"):
            path.write_bytes(zipped(text))
        elif name.endswith((".py", ".yml")):
            path.write_text(text)
        else:
            path.mkdir()
            (path / P1).write_text(text)


def zipped(text, date=(2024, 1, 1, 0, 0, 0)):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo(P1, date), text)
    return made.getvalue()


def taken(tmp_path, list_of_students=None):
    """(rows by the name that the roster or the entry has, the text of P1 by the same, notes)."""
    students = None
    if list_of_students:
        (tmp_path / "roster.csv").write_text(list_of_students)
        students, _ = roster.read(tmp_path / "roster.csv")
    numbers = claims.numbers_of(students)
    found, notes = intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]], numbers=numbers)
    rows, graded, more = claims.join(found, students)
    text = {s.id: (s.folder / P1).read_text() for s in graded if s.modules}
    named = {(row.roster or {}).get("name") or row.title: row for row in rows}
    assert len(named) == len(rows) and len({row.id for row in rows}) == len(rows)
    return named, {name: text.get(row.id) for name, row in named.items()}, [*notes, *more]


# Which platform it is -------------------------------------------------------------------------------------------------

CANVAS = {f"{name}_{1001 + n}_{5001 + n}_{P1}": f"{name} = 1\n" for n, name in enumerate(("alice", "bob", "carol"))}
MOODLE = {f"{name}_{1001 + n}_assignsubmission_file_{P1}": f"{name} = 1\n" for n, name in enumerate(("Ann Lee", "Bo"))}


@pytest.mark.parametrize("odd, name", [
    (f"mal_lory_1009_5009_{P1}", "mal_lory"), (f"jones_late_1007_5007_{P1}", "jones"),
    (f"jones_LATE_1007_5007_{P1}", "jones"), (f"_1_2_{P1}", "_1_2_p1_naive_attention"),
])  # fmt: skip
def test_one_odd_name_leaves_the_class_on_canvas(tmp_path, odd, name):
    put(tmp_path, CANVAS | {odd: "odd = 1\n"})
    rows, text, notes = taken(tmp_path)
    assert [rows[each].lms for each in ("alice", "bob", "carol")] == ["1001", "1002", "1003"] and name in rows
    assert text[name] == "odd = 1\n" and notes[0].startswith("The entries were read as Canvas names them; ")


def test_late_is_said_in_any_letters(tmp_path):
    put(tmp_path, CANVAS | {f"jones_late_1007_5007_{P1}": "x = 1\n", f"kim_LATE_1008_5008_{P1}": "x = 1\n"})
    rows, _, _ = taken(tmp_path)
    assert all("Handed in late, says Canvas." in rows[name].remarks for name in ("jones", "kim"))


@pytest.mark.parametrize("stray", [f"notes_{P1}", f"a_1_2_{P1}"])
def test_one_stray_module_leaves_the_class_on_moodle(tmp_path, stray):
    put(tmp_path, MOODLE | {stray: "stray = 1\n"})
    rows, _, notes = taken(tmp_path)
    assert {"Ann Lee", "Bo"} <= set(rows) and rows["Bo"].lms == "1002"
    assert notes[0] == "The entries were read as Moodle names them; 1 of 3 do not fit."


@pytest.mark.parametrize("one", [min(CANVAS), min(MOODLE)])
def test_modules_with_names_before_them_are_no_platforms(tmp_path, one):
    put(tmp_path, {f"{name}_{P1}": f"{name} = 1\n" for name in ("ann", "bo", "cy", "di")} | {one: "one = 1\n"})
    rows, text, notes = taken(tmp_path)
    assert text["ann"] == "ann = 1\n" and len(rows) == 5
    assert notes[0] == "The entries were read as modules that begin with their student's name; 1 of 5 do not fit."


@pytest.mark.parametrize("name", ["mallory_1001_2_x.zip", "mallory_1001_assignsubmission_file_x.zip"])
def test_one_name_like_a_platforms_gives_nobody_a_number(tmp_path, name):
    put(tmp_path, {f"{who}.zip": f"{who} = 1\n" for who in ("alice", "bob", "carol")} | {name: "mallory = 1\n"})
    rows, text, _ = taken(tmp_path, NUMBERED)
    assert text["Alice"] == "alice = 1\n" and rows["Alice"].remarks == () and text["Bob"] == "bob = 1\n"


def test_another_gap_is_another_owner(tmp_path):
    put(tmp_path, {f"alice_{P1}": "alice = 1\n", f"alice - {P1}": "mallory = 1\n", f"bob_{P1}": "bob = 1\n"})
    found, _ = intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]])
    assert len({s.id for s in found}) == 3 and "alice" not in {s.id for s in found}


# Whose number it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mallory_1001", "alice_1001"])
@pytest.mark.parametrize("students", [NUMBERED, UNNUMBERED, None])
def test_a_display_name_with_anothers_number_takes_nobodys_place(tmp_path, name, students):
    put(tmp_path, {f"alice_1001_5001_{P1}": "alice = 1\n", f"bob_1003_5003_{P1}": "bob = 1\n"})
    put(tmp_path, {f"{name}_2002_5002_{P1}": "mallory = 1\n"})
    rows, text, notes = taken(tmp_path, students)
    alice = "Alice" if students else "alice"
    assert text[alice] == "alice = 1\n" and len([t for t in text.values() if t == "mallory = 1\n"]) == 1
    assert "Handed in twice" not in " ".join(rows[alice].remarks)
    assert any(
        f"may be of {name.split('_')[0]} with the number 1001 or {name} with the number 2002" in n for n in notes
    )


def test_a_file_with_numbers_in_its_name_is_read_by_the_rosters_numbers(tmp_path):
    put(tmp_path, CANVAS | {f"mallory_2002_5009_3_4_{P1}": "mallory = 1\n"})
    rows, text, _ = taken(tmp_path, NUMBERED)
    assert text["Mallory"] == "mallory = 1\n" and rows["Mallory"].lms == "2002"


@pytest.mark.parametrize("name", ["Mal_1001_assignsubmission_file", "Ann Lee_1001_assignsubmission_file"])
def test_a_name_that_holds_moodles_own_words_takes_nobodys_place(tmp_path, name):
    put(tmp_path, MOODLE | {f"{name}_2002_assignsubmission_file_{P1}": "mallory = 1\n"})
    rows, text, notes = taken(tmp_path)
    assert text["Ann Lee"] == "Ann Lee = 1\n" and rows["Ann Lee"].remarks == () and len(rows) == 3
    assert any("it is taken by itself" in note for note in notes)


FOLDED = """---
submission_11:
  :submitters:
  - :name: Alice
    :sid: 's1'
    :email: a@x.org
  :score: 0
submission_22:
  :submitters:
  - :name: {name}
      :sid: s1
    :sid: 's2'
    :email: m@x.org
"""


@pytest.mark.parametrize(
    "name", ["Mallory Mallory", "'Mallory", '"Mallory', "|-", "Mallory\u2028    :sid: s1", "M\x85    :sid: s1"]
)
def test_a_folded_name_says_no_number(tmp_path, name):
    known = submitters.read(FOLDED.format(name=name))
    assert known["22"]["sid"] == "s2" and known["22"]["email"] == "m@x.org"
    assert known["11"] == {"name": "Alice", "sid": "s1", "email": "a@x.org"}


@pytest.mark.parametrize("blank", ["", " ''", " ~", " null"])
def test_a_second_submitter_is_not_the_first(tmp_path, blank):
    known = submitters.read(
        f"submission_1:\n  :submitters:\n  - :name: Mallory\n    :sid:{blank}\n    :email: m@x.org\n"
        "  - :name: Alice\n    :sid: s1\n    :email: a@x.org\nsubmission_2:\n  - :sid: evil\n"
    )
    assert known["1"] == {"name": "Mallory", "sid": "", "email": "m@x.org"} and known["2"]["sid"] == ""


def test_a_number_of_the_platform_is_compared_with_such_numbers_alone(tmp_path):
    put(tmp_path, {f"alice_1001_5001_{P1}": "alice = 1\n", f"bob_1003_5003_{P1}": "bob = 1\n"})
    _, text, _ = taken(tmp_path, 'Student,ID,SIS User ID\n"Carl",9,1001\n"Alice",1001,7\n"Bob",1003,8\n')
    assert text["Alice"] == "alice = 1\n" and text["Bob"] == "bob = 1\n" and text["Carl"] is None


def test_a_number_that_two_students_have_is_nobodys(tmp_path):
    put(tmp_path, {f"alice_1001_5001_{P1}": "alice = 1\n"})
    rows, _, _ = taken(tmp_path, "Student,ID,SIS User ID\nAlice,1001,7\nBob,1001,8\n")
    assert "Several students of the roster could be meant (Alice (7), Bob (8))" in rows["alice"].remarks[0]


# Several claims on one student ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("one, other", [
    (f"leealice_1001_5001_{P1}", f"alicelee_2002_5002_{P1}"),
    (f"Alice Lee_11_assignsubmission_file_{P1}", f"Lee Alice_12_assignsubmission_file_{P1}"),
])  # fmt: skip
def test_two_accounts_of_one_name_are_two_people(tmp_path, one, other):
    put(tmp_path, {one: "alice = 1\n", other: "mallory = 1\n"})
    rows, text, notes = taken(tmp_path, 'id,name\ns1,"Lee, Alice"\ns2,Mallory\n')
    assert text["Lee, Alice"] is None and not rows["Lee, Alice"].handed_in and len(rows) == 4
    said = [note for note in notes if "Two accounts claim Lee, Alice" in note]
    assert len(said) == 1 and "you must say whose it is" in said[0]
    assert rows["Lee, Alice"].remarks == (claims.CONTESTED,)


def test_the_number_decides_between_two_of_one_name(tmp_path):
    put(tmp_path, {f"alice_1001_5001_{P1}": "alice = 1\n", f"Alice_2009_5002_{P1}": "mallory = 1\n"})
    rows, text, _ = taken(tmp_path, NUMBERED.replace("Alice,1001", '"ALICE",1001'))
    assert text["ALICE"] == "alice = 1\n" and text["Alice"] == "mallory = 1\n"
    assert claims.NOBODY in rows["Alice"].remarks and rows["ALICE"].remarks == ()


@pytest.mark.parametrize("name", ["mallory ali", "ali (by Mallory Fox)"])
def test_a_word_beside_another_students_name_claims_nobody(tmp_path, name):
    put(tmp_path, {"alice.zip": "alice = 1\n", f"{name}.zip": "mallory = 1\n"})
    rows, text, _ = taken(tmp_path, "id,name,login\ns10,Alice,ali\ns30,Bob,bob\ns40,Mallory Fox,mal\n")
    assert text["Alice"] == "alice = 1\n" and text[name] == "mallory = 1\n"
    assert "Several students of the roster could be meant (Alice (s10), Mallory Fox (s40))" in rows[name].remarks[0]


@pytest.mark.parametrize("name", ["new ali", "s10 final version"])
def test_a_weaker_claim_never_takes_a_stronger_ones_place(tmp_path, name):
    put(tmp_path, {"alice.zip": "alice = 1\n", f"{name}.zip": "mallory = 1\n"})
    os.utime(tmp_path / "in" / "alice.zip", (1e9, 1e9))
    rows, text, notes = taken(tmp_path, "id,name,login\ns10,Alice,ali\n")
    assert text["Alice"] == "alice = 1\n" and len(rows) == 1
    said = f"Handed in twice; alice.zip, which names the student more surely, was graded, not {name}.zip."
    assert rows["Alice"].remarks[0] == said and f"Alice: {said}" in notes


@pytest.mark.parametrize("date", [(2107, 12, 31, 23, 59, 58), (2050, 1, 1, 0, 0, 0)])
def test_no_date_in_an_archive_makes_it_the_latest(tmp_path, date):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "alice.zip").write_bytes(zipped("alice = 1\n"))
    (tmp_path / "in" / "Alice.zip").write_bytes(zipped("mallory = 1\n", date))
    os.utime(tmp_path / "in" / "Alice.zip", (1e9, 1e9))
    rows, text, notes = taken(tmp_path, "id,name\ns1,Alice\n")
    assert text["Alice"] == "alice = 1\n"
    assert f"Alice: {rows['Alice'].remarks[0]}" in notes and "Handed in twice; the latest" in rows["Alice"].remarks[0]


@pytest.mark.parametrize("ahead", [4e9, 1e10])
def test_a_time_in_the_future_is_not_believed(tmp_path, ahead):
    put(tmp_path, {"alice": "alice = 1\n", "Alice": "mallory = 1\n"})
    os.utime(tmp_path / "in" / "Alice", (ahead, ahead))
    _, text, notes = taken(tmp_path, "id,name\ns1,Alice\n")
    assert text["Alice"] == "alice = 1\n" and "Alice has a date in the future, which does not count." in notes


# One entry costs itself alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["p1²3", "٣①"])
def test_digits_that_are_none_stop_nobody(tmp_path, name):
    assert claims.natural(f"p10{name}") > claims.natural("p9")
    put(tmp_path, CANVAS | {f"mallory_2002_5002_{name}_{P1}": "mallory = 1\n", f"mallory_2002_5003_{P1}": "x = 1\n"})
    _, text, _ = taken(tmp_path, NUMBERED)
    assert text["Mallory"] and text["Alice"] == "alice = 1\n"


@pytest.mark.parametrize("bad", ["bad", "bad.zip"])
def test_a_name_that_fails_stands_by_itself(tmp_path, monkeypatch, bad):
    put(tmp_path, CANVAS | {bad: "bad = 1\n"})
    real = names.find_owner
    monkeypatch.setattr(names, "find_owner", lambda name, *rest: {}["x"] if name == bad else real(name, *rest))
    _, text, notes = taken(tmp_path)
    assert text["alice"] == "alice = 1\n" and text["bad"] == "bad = 1\n"
    assert any(f"It could not be told whose {bad} is, and that is the grader's fault (KeyError" in n for n in notes)


@pytest.mark.parametrize("what", ["find", "latest"])
def test_a_claim_that_fails_stands_by_itself(tmp_path, monkeypatch, what):
    put(tmp_path, {"alice": "alice = 1\n", "bad": "bad = 1\n", "bob": "bob = 1\n"})
    real = getattr(claims, what)

    def failing(first, *rest):
        title = first.title if what == "find" else first[0].title
        return {}["x"] if title == "bad" else real(first, *rest)

    monkeypatch.setattr(claims, what, failing)
    rows, text, _ = taken(tmp_path, "id,name\ns1,Alice\ns2,Bad\ns3,Bob\n")
    assert text["Alice"] == "alice = 1\n" and text["Bob"] == "bob = 1\n" and text["bad"] == "bad = 1\n"
    assert "that is the grader's fault (KeyError: 'x'): it stands by itself." in rows["bad"].remarks[0]


@pytest.mark.parametrize("module, what", [(intake, "take_in"), (claims, "join")])
def test_a_fault_of_ours_is_one_sentence(tmp_path, monkeypatch, capsys, module, what):
    put(tmp_path, {"alice": "alice = 1\n"})
    monkeypatch.setattr(module, what, lambda *_, **__: [][1])
    assert quick_class.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--problems", "1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("class: the submissions could not be taken in, and that is the")
    assert "IndexError" in said and "nothing was graded or lost" in said


@pytest.mark.parametrize("loop", ["loop", "loop.zip"])
def test_a_link_to_itself_stops_nobody(tmp_path, loop):
    put(tmp_path, {"alice": "alice = 1\n"})
    (tmp_path / "in" / loop).symlink_to(loop)
    _, text, notes = taken(tmp_path)
    assert text["alice"] == "alice = 1\n" and (len(text) == 2 or "loop is no folder and no regular file" in notes[0])


@pytest.mark.parametrize("others", [{"alice": "alice = 1\n"}, {"bob.zip": "bob = 1\n", "alice": "alice = 1\n"}])
def test_a_module_among_submissions_is_taken_by_itself(tmp_path, others):
    put(tmp_path, others | {P1: "odd = 1\n"})
    _, text, notes = taken(tmp_path)
    assert text["alice"] == "alice = 1\n" and text[P1.removesuffix(".py")] == "odd = 1\n"
    assert f"{P1} names no student: it is taken by itself." in notes


@pytest.mark.parametrize("beside", [{}, {P2: "x = 1\n"}, {P2: "x = 1\n", "helper.py": "x = 1\n"}])
def test_modules_alone_look_like_one_submission(tmp_path, beside):
    put(tmp_path, {P1: "x = 1\n"} | beside)
    (tmp_path / "in" / "README.md").write_text("mine")
    with pytest.raises(BadFolder, match="looks like one submission"):
        taken(tmp_path)


@pytest.mark.parametrize("hidden", [".bob.zip", "._carol.zip", "venv", ".git"])
def test_what_is_left_out_is_said(tmp_path, hidden):
    put(tmp_path, {"alice": "alice = 1\n", hidden: "x = 1\n"})
    rows, _, notes = taken(tmp_path)
    said = f"Left out, as hidden files and the folders of tools are: {hidden}; rename what a student handed in."
    assert list(rows) == ["alice"] and notes == [said]
