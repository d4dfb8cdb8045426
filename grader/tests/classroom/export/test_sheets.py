"""Canvas' and Moodle's own files: the cells that are ours are filled, and every other byte stays."""

from dataclasses import replace

import pytest

from grader.classroom.export import canvas, moodle
from grader.classroom.export.standing import decimal, standings
from grader.classroom.sheet import BadSheet, Sheet
from grader.tests.classroom.class_sample import make

CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Essay (990),FlashAttention (12345),Final Score\r\n"
    ",,,,,Manual Posting,,\r\n"
    "    Points Possible,,,,,10.00,100.00,(read only)\r\n"
    '"Lovelace, Ada",101,s0000,login0,"Lab ""A"", Monday",9.5,,91.20\r\n'
    '"Åström, Søren",102,,login1,Lab B,,"",\r\n'
    "李 明,103,,s0002@uni.example,Lab B,7,12.00,55\r\n"
    '"Ñúñez, José",104,,,Lab B,7,,\r\n'
    '"Lovelace, Ada",105,,,Lab C,=1+1,,\r\n'
    '"Somebody, Else",106,s9999,nobody,"Lab\nC",1,50.00,\r\n'
    '"Student, Test",107,,x,Lab B,,0.00,\r\n'
)
MOODLE = (
    'Identifier,"Full name","Email address",Status,Grade,"Maximum Grade","Grade can be changed",'
    '"Last modified (grade)","Feedback comments"\n'
    '"Participant 4711","Ada Lovelace",s0000@uni.example,"Submitted for grading",,100.00,Yes,-,\n'
    '"Participant 4712","Søren Åström",,"No submission",1.00,100.00,Yes,-,"well, ""yes"""\n'
    '"Participant 4713",,,"Submitted",,100.00,Yes,-,\n'
    '"Participant 4714","José Ñúñez",S0003@UNI.example,"Submitted",,100.00,No,-,\n'
    '"Participant 4715","=cmd",s0008@uni.example,"Submitted",,50.00,Yes,-,\n'
)


def fill_canvas(tmp_path, data, column="FlashAttention", graded=None):
    given, out = tmp_path / "export.csv", tmp_path / "canvas.csv"
    given.write_bytes(data if isinstance(data, bytes) else data.encode())
    said = canvas.fill(graded or make(), given, column, out)
    return out.read_bytes().decode() if not isinstance(data, bytes) else out.read_bytes(), said


def fill_moodle(tmp_path, text, graded=None, **options):
    given, out = tmp_path / "export.csv", tmp_path / "moodle.csv"
    given.write_bytes(text.encode())
    said = moodle.fill(graded or make(), given, out, **options)
    return out.read_bytes().decode(), said


def total(id, graded=None):
    return decimal(next(s.total for s in standings(graded or make()) if s.id == id))


def test_canvas_fills_one_column_and_keeps_every_other_byte(tmp_path):
    text, said = fill_canvas(tmp_path, CANVAS)
    expected = (
        CANVAS.replace('Monday",9.5,,', f'Monday",9.5,{total("s0000")},')
        .replace('Lab B,,"",', f'Lab B,,"{total("s0001")}",')
        .replace("7,12.00,55", f"7,{total('s0002')},55")
        .replace("104,,,Lab B,7,,", f"104,,,Lab B,7,{total('s0003')},")
    )
    assert text == expected
    assert said[0].endswith("4 of 6 rows filled in 'FlashAttention (12345)'")


def test_canvas_guesses_no_name_and_says_whom_it_left(tmp_path):
    _, said = fill_canvas(tmp_path, CANVAS)
    assert any(s.startswith("Ada Lovelace (s0012)") and "could be any of 2 rows" in s for s in said)
    assert any("Somebody, Else in export.csv has no submission" in s for s in said)
    assert any("(s0005) is not in export.csv; nothing was filled in" in s for s in said)
    assert not any("Test" in s for s in said)


def test_canvas_fills_no_machine_fault_and_nothing_held(tmp_path):
    rows = '"Neill, Anne",1,s0006,,,,7.00,\n"x",2,s0005,,,,8.00,\n"y",3,s0039,,,,,\n'
    text, said = fill_canvas(tmp_path, CANVAS.split("\r\n")[0] + "\n" + rows)
    assert text.endswith(rows)
    for id, why in (("s0006", "machine fault"), ("s0005", "needs review"), ("s0039", "not handed in")):
        assert any(f"({id}) is left as it was: {why}" in s for s in said)


def test_canvas_says_where_points_are_out_of_something_else(tmp_path):
    _, said = fill_canvas(tmp_path, CANVAS.replace("10.00,100.00", "10.00,50.00"))
    assert any("out of 50 points, what was graded out of 100" in s for s in said)
    assert not any("out of" in s for s in fill_canvas(tmp_path, CANVAS)[1])


@pytest.mark.parametrize("column", ["FlashAttention (12345)", "flashattention", "Flash"])
def test_canvas_finds_the_column_by_its_beginning(tmp_path, column):
    assert fill_canvas(tmp_path, CANVAS, column)[0] == fill_canvas(tmp_path, CANVAS)[0]


@pytest.mark.parametrize(
    ("column", "words"),
    [("Quiz", "its assignments are: 'Essay (990)', 'FlashAttention (12345)'"), ("Final Score", "read only"),
     ("Section", "says who a student is"), ("SIS", "could be any of"), ("", "no column ''")],
)  # fmt: skip
def test_canvas_refuses_a_column_that_is_none(tmp_path, column, words):
    with pytest.raises(BadSheet) as error:
        fill_canvas(tmp_path, CANVAS, column)
    assert words in str(error.value) and not (tmp_path / "canvas.csv").exists()


def test_a_name_is_not_enough_where_the_ids_say_another_student(tmp_path):
    text = CANVAS.replace('"Åström, Søren",102,,login1', '"Åström, Søren",102,s7777,')
    filled, said = fill_canvas(tmp_path, text)
    assert '102,s7777,,Lab B,,"",' in filled
    assert any("Søren Åström (s0001) has the name" in s and "another SIS User ID" in s for s in said)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_bytes_of_any_encoding_and_line_end_come_back(encoding, end):
    text = f'a;"b ""c""\r\n d";é ü{end};;"" {end}{end}"open;x{end}last'
    data = text.encode(encoding)
    sheet = Sheet(data, "x.csv")
    assert sheet.to_bytes() == data and sheet.delimiter == ";"
    assert sheet.rows[0][1].text == 'b "c"\r\n d'


def test_german_decimals_and_semicolons_stay_german(tmp_path):
    text = "Student;ID;SIS User ID;SIS Login ID;Section;P (1)\n    Points Possible;;;;;100,00\nx;1;s0003;;;\n"
    filled, said = fill_canvas(tmp_path, text, "P")
    assert filled.endswith(f"x;1;s0003;;;{total('s0003').replace('.', ',')}\n") and "," in filled.splitlines()[-1]
    assert not any("out of" in s for s in said)


def test_moodle_fills_the_grade_alone_unless_feedback_is_asked_for(tmp_path):
    graded = make()
    rows = (replace(row, lms="4713") if row.id == "sub-0002" else row for row in graded.submissions)
    graded = replace(graded, submissions=tuple(rows))
    text, said = fill_moodle(tmp_path, MOODLE, graded)
    expected = (
        MOODLE.replace('for grading",,', f'for grading",{total("s0000")},')
        .replace('"No submission",1.00', f'"No submission",{total("s0001")}')
        .replace('4713",,,"Submitted",,', f'4713",,,"Submitted",{total("s0002")},')
    )
    assert text == expected
    assert any("(s0003) is left as it was: Moodle says that this grade cannot be changed" in s for s in said)
    assert any("more than Moodle's maximum of 50" in s for s in said)
    text, _ = fill_moodle(tmp_path, MOODLE, graded, feedback=True)
    assert text.splitlines()[1].endswith(',-,"p1 5/10, p2 15/15, p3 15/15, p4 7.5/15, p5 5/15, p6 15/15, p7 15/15"')


def test_moodle_takes_no_namesake_with_another_address(tmp_path):
    text = MOODLE.replace('"Søren Åström",', '"Søren Åström",other@uni.example')
    filled, said = fill_moodle(tmp_path, text)
    assert '"No submission",1.00' in filled
    assert any("Søren Åström (s0001) has the name" in s and "another email address" in s for s in said)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), ("a,b\n1,2\n", "no column 'Grade'; its columns are: a, b"),
     ("Identifier,Grade\n", "no participants")],
)  # fmt: skip
def test_a_file_that_is_no_worksheet_is_refused_in_a_sentence(tmp_path, text, words):
    with pytest.raises(BadSheet) as error:
        fill_moodle(tmp_path, text)
    assert words in str(error.value)
