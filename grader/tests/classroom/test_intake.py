"""Whatever students hand in is taken in: each oddity has its remark, and nothing is written elsewhere."""

import io
import multiprocessing
import os
import signal
import socket
import struct
import time
import tokenize
import zipfile
from pathlib import Path

import pytest

from grader.classroom import harvest, intake, names
from grader.classroom.entries import BadFolder
from grader.kinds.registry import PROBLEMS
from grader.tests.support import solution, thorough_but

ALL = tuple(PROBLEMS.values())
P1, P3 = PROBLEMS["p1"].module, PROBLEMS["p3"].module


def take(tmp_path, problems=ALL[:1]):
    """{title: Submission} of the folder `in`; what lies beside it must stay as it was."""
    beside = tmp_path / "beside.py"
    beside.write_text("untouched")
    before = {path for path in tmp_path.rglob("*") if tmp_path / "out" not in path.parents}
    submissions, _ = intake.take_in(tmp_path / "in", tmp_path / "out", problems)
    after = {path for path in tmp_path.rglob("*") if tmp_path / "out" not in path.parents}
    assert after - before <= {tmp_path / "out"} and beside.read_text() == "untouched"
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_symlink()
    return {submission.title: submission for submission in submissions}


def put(path, text="x = 1\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def make_zip(path, members):
    """members: {name: text or bytes}, or ZipInfo for a name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def text_of(submission, module=P1):
    return (submission.folder / module).read_text()


def said(submission, *words):
    text = " ".join(submission.remarks)
    return all(word in text for word in words)


def test_a_folder_a_zip_and_a_single_file(tmp_path):
    put(tmp_path / "in" / "ann" / P1, "ann = 1\n")
    make_zip(tmp_path / "in" / "bob.zip", {P1: "bob = 1\n"})
    put(tmp_path / "in" / f"cy_{P1}", "cy = 1\n")
    put(tmp_path / "in" / f"cy_{P3}", "cy = 3\n")
    put(tmp_path / "in" / "dan.py", solution("p1"))
    found = take(tmp_path)
    assert [text_of(found[name]) for name in ("ann", "bob", "cy")] == ["ann = 1\n", "bob = 1\n", "cy = 1\n"]
    assert text_of(found["cy"], P3) == "cy = 3\n" and text_of(found["dan"]) == solution("p1")
    assert found["ann"].remarks == () and found["bob"].remarks == ()
    assert found["ann"].modules == (P1,) and found["ann"].id == "ann"


def test_hints_that_were_asked_for_are_a_remark(tmp_path):
    hints = '{"p3": {"failure": "x", "step": 2, "total": 4}, "p1": {"failure": "", "step": 0, "total": 0}}'
    put(tmp_path / "in" / "ann" / P1)
    put(tmp_path / "in" / "ann" / "hints.json", hints)
    make_zip(tmp_path / "in" / "bob.zip", {f"mine/{P1}": "bob = 1\n", "mine/hints.json": hints})
    make_zip(tmp_path / "in" / "cy.zip", {P1: "cy = 1\n", "hints.json": "{" * 9})
    found = take(tmp_path)
    said = "Hints asked for, as its hints.json says: p3 4."
    assert [found[name].remarks for name in ("ann", "bob", "cy")] == [(said,), (said,), ()]
    assert all(os.listdir(found[name].folder) == [P1] for name in ("ann", "bob", "cy"))


def test_only_known_modules_are_copied(tmp_path):
    put(tmp_path / "in" / "ann" / P1)
    for name in ("sitecustomize.py", "torch.py", "report.pdf", "conftest.py"):
        put(tmp_path / "in" / "ann" / name)
    assert os.listdir(take(tmp_path)["ann"].folder) == [P1]


ODD = ["two words", "näher", "o'brien", '"quoted"', "-dash", "--out", "line\nbreak", "tab\there", "$(reboot)", "`x`",
       "..hidden.", "a;b", "%s%n", "学生", "x" * 200, "CON", "a\\b"]  # fmt: skip


def test_odd_names_give_safe_ids(tmp_path):
    for name in ODD:
        put(tmp_path / "in" / name / P1, f"name = {name!r}\n")
    os.makedirs(os.fsencode(tmp_path / "in") + b"/broken\xff\xfe")
    put(Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"/broken\xff\xfe/" + P1.encode())))
    submissions, _ = intake.take_in(tmp_path / "in", tmp_path / "out", ALL[:1])
    ids = [submission.id for submission in submissions]
    assert len(set(map(str.lower, ids))) == len(ODD) + 1
    for id in ids:
        assert set(id) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") and id[0].isalnum() and len(id) <= 60
    assert all(submission.modules for submission in submissions)
    for submission in submissions:
        assert submission.title.isprintable() and submission.title.encode()


def test_names_that_differ_by_case_alone(tmp_path):
    for name in ("Ann", "ann", "ANN"):
        put(tmp_path / "in" / name / P1, f"{name} = 1\n")
    found = take(tmp_path)
    assert len({submission.id.lower() for submission in found.values()}) == 3
    assert [text_of(found[name]) for name in ("Ann", "ann", "ANN")] == ["Ann = 1\n", "ann = 1\n", "ANN = 1\n"]


def test_an_id_does_not_depend_on_who_else_handed_in(tmp_path):
    for name in ("Zoë Müller", "ann", "line\nbreak"):
        put(tmp_path / "in" / name / P1)
    alone = {names.slug(name) for name in ("Zoë Müller", "ann", "line\nbreak")}
    assert {s.id for s in take(tmp_path).values()} == alone


def test_nested_folders_and_the_shallowest_of_several(tmp_path):
    put(tmp_path / "in" / "ann" / "a" / "b" / "c" / P1, "deep = 1\n")
    put(tmp_path / "in" / "bob" / "old" / "older" / P1, "old = 1\n")
    put(tmp_path / "in" / "bob" / "hw" / P1, "right = 1\n")
    put(tmp_path / "in" / "bob" / "__MACOSX" / P1, "junk = 1\n")
    found = take(tmp_path)
    assert text_of(found["ann"]) == "deep = 1\n" and found["ann"].remarks == ()
    assert text_of(found["bob"]) == "right = 1\n"
    assert said(found["bob"], "several times", f"hw/{P1} was graded", f"not old/older/{P1}")


@pytest.mark.parametrize("ending", [".py", ".zip"])
def test_of_several_with_one_name_the_entries_are_named(ending, tmp_path):
    file = P1 if ending == ".py" else "work.zip"
    for number, text in ((1, "x = 1\n"), (2, "x = 2\n")):
        path = tmp_path / "in" / f"ann_7_{number}_{file}"
        put(path, text) if ending == ".py" else make_zip(path, {P1: text})
    (remark,) = [remark for remark in take(tmp_path)["ann"].remarks if "several times" in remark]
    assert f" of ann_7_1_{file}" in remark and f" of ann_7_2_{file}" in remark


def test_a_whole_repository_is_graded_from_problems(tmp_path):
    put(tmp_path / "in" / "ann" / "repo" / "solutions" / P1, "solution = 1\n")
    put(tmp_path / "in" / "ann" / "repo" / "problems" / P1, "mine = 1\n")
    assert text_of(take(tmp_path)["ann"]) == "mine = 1\n"


def test_missing_modules_are_named(tmp_path):
    put(tmp_path / "in" / "ann" / P1)
    put(tmp_path / "in" / "bob" / "essay.docx")
    found = take(tmp_path, ALL[:3])
    assert said(found["ann"], "Missing: p2_online_softmax.py, p3_flash_attention.py")
    assert said(found["bob"], "No module was found", ".docx") and found["bob"].modules == ()
    assert os.listdir(found["bob"].folder) == []


def test_names_of_browsers_and_other_cases(tmp_path):
    put(tmp_path / "in" / "ann" / "p1_naive_attention (1).py", "one = 1\n")
    put(tmp_path / "in" / "bob" / "P1_Naive_Attention.PY", "two = 1\n")
    found = take(tmp_path)
    assert text_of(found["ann"]) == "one = 1\n" and said(found["ann"], "was taken for", P1)
    assert text_of(found["bob"]) == "two = 1\n"


def test_names_of_the_public_course_by_entry_point(tmp_path):
    ann = tmp_path / "in" / "ann"
    for id in ("p1", "p2", "p3", "p6", "p7"):
        put(ann / f"problem_{int(id[1]) + 2}.py", solution(id))
    put(ann / "problem_20.py", solution("p5"))
    put(ann / "notes.py", "x = 1\n")
    found = take(tmp_path, ALL)["ann"]
    assert [module[:2] for module in found.modules] == ["p1", "p2", "p3", "p6", "p7"]
    assert text_of(found, P3) == solution("p3") and said(found, "problem_5.py was taken for p3_flash_attention.py")
    assert said(found, "problem_20.py defines an entry point of several problems")


def test_two_files_that_could_be_one_module_are_not_guessed(tmp_path):
    put(tmp_path / "in" / "ann" / "a.py", solution("p1"))
    put(tmp_path / "in" / "ann" / "b.py", solution("p1") + "\n# other\n")
    found = take(tmp_path)["ann"]
    assert found.modules == () and said(found, "a.py and b.py could each be", P1)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"x = 1\r\ny = 2\r\n", "Windows line ends"),
        (b"\xef\xbb\xbfx = 1\ny = 2\n", ""),
        ("x = 1\ny = 2\n".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + "x = 1\ny = 2\n".encode("utf-16-be"), "UTF-16"),
        ("x = 1\r\ny = 2\r\n".encode("utf-8-sig"), "Windows line ends"),
        (b"x = 1\ry = 2\r", "Windows line ends"),
    ],
)
def test_line_ends_and_encodings(tmp_path, data, words):
    put(tmp_path / "in" / "ann" / P1, data)
    found = take(tmp_path)["ann"]
    assert text_of(found) == "x = 1\ny = 2\n" and said(found, words) and bool(found.remarks) == bool(words)


def test_a_text_in_an_old_encoding(tmp_path):
    put(tmp_path / "in" / "ann" / P1, "# für\n".encode("cp1252"))
    found = take(tmp_path)["ann"]
    assert text_of(found) == "# für\n" and said(found, "Windows-1252")


@pytest.mark.parametrize(
    "first", ["# coding: {}", "#!/usr/bin/python\r# -*- coding: {} -*-", "\f\n# vim:fileencoding={}"]
)
@pytest.mark.parametrize("name", ["utf-7", "rot13", "UTF_7", "unicode_escape", "utf-16", "cp037", "hex", "no-such"])
def test_an_encoding_that_hides_the_text_is_refused(name, first, tmp_path):
    put(tmp_path / "in" / "ann" / P1, f"{first.format(name)}\n+AHg- = 1\n")
    found = take(tmp_path)["ann"]
    assert found.modules == () and said(found, "names an encoding that is not read here", "Save it as UTF-8")


@pytest.mark.parametrize(
    "first", ["# coding: {}\n", "#!/usr/bin/python\r\n# -*- coding: {} -*-\r\n", "\r# coding={}\r"]
)
@pytest.mark.parametrize("name", ["latin-1", "iso-8859-15", "cp1252", "utf-8-unix", "latin-1-unix", "ascii", "utf8"])
def test_a_copy_is_utf8_and_says_so_on_the_same_line(name, first, tmp_path):
    encoding = name.removesuffix("-unix").replace("ascii", "utf-8")
    put(tmp_path / "in" / "ann" / P1, f"{first.format(name)}\nx = 'für'\n".encode(encoding))
    found = take(tmp_path)["ann"]
    data = (found.folder / P1).read_bytes()
    lines = f"{first.format('utf-8')}\nx = 'für'\n".replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert data.decode("utf-8").split("\n") == lines and found.modules == (P1,)
    assert tokenize.detect_encoding(io.BytesIO(data).readline)[0] == "utf-8"


def test_what_names_no_encoding_by_pythons_rules_stays_as_it_is(tmp_path):
    text = 'x = """\n# coding: utf-7\n"""\n# coding: rot13\n'
    put(tmp_path / "in" / "ann" / P1, text)
    assert text_of(take(tmp_path)["ann"]) == text


@pytest.mark.parametrize("data, words", [(b"\0\1\2binary", "binary"), (b"\xff\xfe\0\xd8", "no text"),
                                         (b'{"cells": []}', "a notebook under a module's name")])  # fmt: skip
def test_what_is_no_python_is_left_out(tmp_path, data, words):
    put(tmp_path / "in" / "ann" / P1, data)
    found = take(tmp_path)["ann"]
    assert found.modules == () and said(found, words, P1)


def test_an_empty_file_is_handed_in_and_empty(tmp_path):
    put(tmp_path / "in" / "ann" / P1, b"")
    found = take(tmp_path)["ann"]
    assert found.modules == (P1,) and said(found, f"{P1} is empty")


def test_a_notebook_is_not_converted(tmp_path):
    put(tmp_path / "in" / "ann" / "p1_naive_attention.ipynb", b'{"cells": []}')
    put(tmp_path / "in" / "bob.ipynb", b'{"cells": []}')
    found = take(tmp_path)
    for name in ("ann", "bob"):
        assert found[name].modules == () and said(found[name], "is a notebook", f"hand in the modules ({P1}")


# What would do harm ---------------------------------------------------------------------------------------------------


def test_links_are_not_followed(tmp_path):
    secret = put(tmp_path / "secret.py", "secret = 1\n")
    (tmp_path / "in" / "ann").mkdir(parents=True)
    (tmp_path / "in" / "ann" / P1).symlink_to(secret)
    (tmp_path / "in" / "bob").mkdir()
    (tmp_path / "in" / "bob" / "all").symlink_to(tmp_path)
    (tmp_path / "in" / "bob" / "loop").symlink_to(".")
    (tmp_path / "in" / "cy").symlink_to(tmp_path / "in" / "ann")
    (tmp_path / "in" / "dan.zip").symlink_to("/dev/zero")
    found = take(tmp_path)
    for submission in found.values():
        assert submission.modules == () and said(submission, "symbolic link and was not followed")
    assert len(found) == 4


def test_pipes_sockets_and_devices_are_not_opened(tmp_path, monkeypatch):
    (tmp_path / "in" / "ann").mkdir(parents=True)
    os.mkfifo(tmp_path / "in" / "ann" / P1)
    (tmp_path / "in" / "bob").mkdir()
    monkeypatch.chdir(tmp_path / "in" / "bob")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(P1)
        os.mkfifo(tmp_path / "in" / "cy.zip")
        found = take(tmp_path)
    for name in ("ann", "bob", "cy"):
        assert found[name].modules == () and said(found[name], "no regular file")


def test_a_file_that_cannot_be_read_is_a_remark(tmp_path, monkeypatch):
    put(tmp_path / "in" / "ann" / P1)

    def refuse(path, *rest):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(harvest, "look_at_file", refuse)
    assert said(take(tmp_path)["ann"], f"{P1} cannot be read: Permission denied")


def linked(name, mode=0o120777):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def test_paths_and_links_in_archives_escape_nowhere(tmp_path):
    path = tmp_path / "in" / "ann.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"../../{P1}", "up = 1\n")
        archive.writestr(f"/{P1}", "root = 1\n")
        archive.writestr(f"..\\..\\{P1}", "up = 1\n")
        archive.writestr(f"C:\\{P1}", "drive = 1\n")
        archive.writestr(linked(P1), "../beside.py")
        archive.writestr(linked("device.py", 0o060666), "")
        archive.writestr("../beside.py", "changed")
    found = take(tmp_path)["ann"]
    assert found.modules == () and said(found, "outside of its archive", "is a link or a device")


def test_backslashes_are_folders(tmp_path):
    make_zip(tmp_path / "in" / "ann.zip", {f"hw\\{P1}": "x = 1\n"})
    assert text_of(take(tmp_path)["ann"]) == "x = 1\n"


def test_archives_in_archives(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", {P1: "x = 1\n"}).read_bytes()
    twice = make_zip(tmp_path / "twice.zip", {"inner.zip": inner}).read_bytes()
    make_zip(tmp_path / "in" / "ann.zip", {"inner.zip": inner})
    put(tmp_path / "in" / "bob" / "work.zip", inner)
    make_zip(tmp_path / "in" / "cy.zip", {"twice.zip": twice})
    found = take(tmp_path)
    assert text_of(found["ann"]) == text_of(found["bob"]) == "x = 1\n"
    assert found["cy"].modules == () and said(found["cy"], "an archive in an archive in an archive")


def test_a_bomb_is_not_unpacked(tmp_path):
    make_zip(tmp_path / "in" / "ann.zip", {P1: b"\0" * (200 << 20), P3: "x = 1\n"})
    found = take(tmp_path, ALL[:3])["ann"]
    assert found.modules == (P3,) and said(found, f"{P1} is larger than 1 MB")


def test_a_table_of_contents_that_lies_about_sizes(tmp_path):
    path = make_zip(tmp_path / "in" / "ann.zip", {P1: b"#" * (50 << 20)})
    data = bytearray(path.read_bytes())
    for place in (data.index(b"PK\1\2") + 24, 22):  # the size before packing, in both of its places
        data[place : place + 4] = struct.pack("<I", 1000)
    path.write_bytes(data)
    found = take(tmp_path)["ann"]
    assert found.modules in ((), (P1,)) and len(text_of(found)) <= 1000 if found.modules else found.remarks


def test_far_too_many_members(tmp_path):
    path = tmp_path / "in" / "ann.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(P1, "x = 1\n")
        for number in range(harvest.ENTRIES + 5):
            archive.writestr(f"{number}.txt", "")
    assert said(take(tmp_path)["ann"], "holds more than 20,000 files") and text_of(take(tmp_path)["ann"]) == "x = 1\n"


def test_a_table_of_contents_that_is_itself_a_bomb(tmp_path):
    path = tmp_path / "in" / "ann.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(60):
            archive.writestr(f"{number}{'n' * 65000}/x.txt", "")
            archive.writestr(f"{number}{'m' * 65000}/x.txt", "")
            archive.writestr(f"{number}{'o' * 65000}/x.txt", "")
    assert path.stat().st_size > harvest.DIRECTORY_BYTES
    assert said(take(tmp_path)["ann"], "lists far too many files")


def test_ten_gigabytes_of_junk_are_not_read(tmp_path):
    put(tmp_path / "in" / "ann" / P1)
    for name in ("data.bin", "huge.py", "p2_online_softmax.py"):
        with (tmp_path / "in" / "ann" / name).open("wb") as file:
            file.truncate(4 << 30)  # takes no room on the disk
    found = take(tmp_path, ALL[:2])["ann"]
    assert found.modules == (P1,) and said(found, "p2_online_softmax.py is larger than 1 MB")


def test_deep_and_wide_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(harvest, "ENTRIES", 300)
    deep = tmp_path / "in" / "ann" / "/".join("d" * 40) / P1
    put(deep)
    for number in range(400):
        put(tmp_path / "in" / "bob" / f"{number}.txt", b"")
    found = take(tmp_path)
    assert said(found["ann"], "Folders lie more than 12 deep") and said(found["bob"], "holds more than 300 files")


def test_encrypted_and_broken_archives(tmp_path):
    whole = make_zip(tmp_path / "whole.zip", {P1: "x = 1\n" * 1000, P3: "y = 1\n"}).read_bytes()
    locked = bytearray(whole)
    for mark, place in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        locked[locked.index(mark) + place] |= 1
    put(tmp_path / "in" / "ann.zip", bytes(locked))
    put(tmp_path / "in" / "bob.zip", whole[: len(whole) // 2])
    put(tmp_path / "in" / "cy.zip", b"no zip at all")
    damaged = bytearray(whole)
    damaged[60:64] = b"\xff\xff\xff\xff"
    put(tmp_path / "in" / "dan.zip", bytes(damaged))
    put(tmp_path / "in" / "eve.zip", b"")
    put(tmp_path / "in" / "fay.tar.gz", b"\x1f\x8b")
    put(tmp_path / "in" / "gus.zip", b"Rar!\x1a\x07")
    found = take(tmp_path, ALL[:3])
    assert said(found["ann"], "encrypted") and found["ann"].modules == (P3,)
    for name in ("bob", "cy", "eve", "gus"):
        assert said(found[name], "cannot be read", "make a new zip")
    assert said(found["dan"], "is damaged") and found["dan"].modules == (P3,)
    assert said(found["fay"], "an archive other than zip")


@pytest.mark.parametrize("seed", thorough_but(range(6), range(60)))
def test_any_damage_to_an_archive_is_survived(tmp_path, seed):
    import random

    draw = random.Random(seed)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(P1, "x = 1\n" * 50)
    data = bytearray(make_zip(tmp_path / "a.zip", {P1: "x = 1\n" * 50, "b/i.zip": inner.getvalue()}).read_bytes())
    for _ in range(draw.randrange(1, 12)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    put(tmp_path / "in" / "ann.zip", bytes(data))
    found = take(tmp_path)
    assert list(found) == ["ann"] and (found["ann"].modules or found["ann"].remarks), "graded, or told why not"


# Platforms ------------------------------------------------------------------------------------------------------------


def test_moodle(tmp_path):
    put(tmp_path / "in" / "Ann Müller_12345_assignsubmission_file_" / P1)
    make_zip(tmp_path / "in" / "Bob Jones_23456_assignsubmission_file_work.zip", {P1: "x = 1\n"})
    put(tmp_path / "in" / f"Cy Lee_34567_assignsubmission_file_{P1}")
    put(tmp_path / "in" / f"Cy Lee_34567_assignsubmission_file_{P3}")
    found = take(tmp_path, ALL[:3])
    assert set(found) == {"Ann Müller", "Bob Jones", "Cy Lee"}
    assert found["Cy Lee"].modules == (P1, P3) and found["Cy Lee"].owner.lms == "34567"
    assert found["Ann Müller"].modules == found["Bob Jones"].modules == (P1,)


def test_canvas(tmp_path):
    put(tmp_path / "in" / f"doejane_111_9001_{P1}", "one = 1\n")
    put(tmp_path / "in" / f"doejane_111_9002_{P3[:-3]}-2.py", "two = 1\n")
    make_zip(tmp_path / "in" / "roejim_LATE_222_9003_work.zip", {P1: "x = 1\n"})
    found = take(tmp_path, ALL[:3])
    assert found["doejane"].modules == (P1, P3) and found["doejane"].owner.lms == "111"
    assert said(found["roejim"], "late") and found["roejim"].id == "roejim-222"


def test_gradescope(tmp_path):
    put(tmp_path / "in" / "submission_77" / P1)
    put(tmp_path / "in" / "submission_metadata.yml", "submission_77:\n  :submitters:\n  - :name: Ann Lee\n    "
        ":sid: '1234'\n    :email: ann@uni.edu\n  :score: 0\n")  # fmt: skip
    found = take(tmp_path)["Ann Lee"]
    assert found.owner.sid == "1234" and found.owner.email == "ann@uni.edu" and found.id == "1234"


def test_folders_that_cannot_be_meant(tmp_path):
    put(tmp_path / "in" / P1)
    with pytest.raises(BadFolder, match="looks like one submission"):
        take(tmp_path)
    (tmp_path / "in" / P1).unlink()
    with pytest.raises(BadFolder, match="holds no submissions"):
        take(tmp_path)


def test_the_same_again_gives_the_same_folder_and_mends_it(tmp_path):
    put(tmp_path / "in" / "ann" / P1)
    first = take(tmp_path)["ann"].folder
    (first / P1).write_text("changed")
    (first / "more.py").write_text("left by somebody")
    assert take(tmp_path)["ann"].folder == first
    assert (first / P1).read_text() == "x = 1\n"


# What one student can do to others, and to the intake --------------------------------------------------------------

MOODLES = "x_11_assignsubmission_file_p3_flash_attention.py"
IMITATIONS = {
    "canvas": ("ada_11_21_p3_flash_attention.py", f"mal_12_22_{MOODLES}", "canvas 11"),
    "moodle": (f"Ada_{MOODLES[2:]}", "Mal_12_assignsubmission_file_ada_11_21_p3.py", "moodle 11"),
}


@pytest.mark.parametrize("platform", IMITATIONS)
def test_a_files_name_that_imitates_another_platform_takes_nobodys_place(platform, tmp_path):
    ada, mallory, plain = IMITATIONS[platform]
    folder = tmp_path / "in"
    folder.mkdir()
    texts = {ada: "# ada\n", mallory: "# mallory\n", f"{plain}.py": "# plain\n"}
    for name, text in texts.items():
        (folder / name).write_text(f"{text}def flash_attention_forward(q, k, v, is_causal=False):\n    import triton\n")
    submissions, _ = intake.take_in(folder, tmp_path / "out", [PROBLEMS["p3"]])
    owners = {s.owner.lms: s for s in submissions}
    assert set(owners) == {"11", "12", ""} and len({s.id for s in submissions}) == 3
    assert "# ada" in (owners["11"].folder / "p3_flash_attention.py").read_text()


def test_ids_that_students_choose_never_meet(tmp_path):
    for name in ("alice", "alice-2"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "p1_naive_attention.py").write_text(f"# {name}\n")
    with zipfile.ZipFile(tmp_path / "in" / "alice.zip", "w") as archive:
        archive.writestr("p1_naive_attention.py", "# zip\n")
    submissions, _ = intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]])
    assert len({s.id for s in submissions}) == len(submissions) == 3


def test_an_entry_named_as_another_platform_does_it_is_said(tmp_path):
    for name in ("ada_1_2_p1_naive_attention.py", "bo_3_4_p1_naive_attention.py", "Eve_7_assignsubmission_file_p1.py"):
        (tmp_path / name).write_text("# x\n")
    _, notes = intake.take_in(tmp_path, tmp_path / "out", [PROBLEMS["p1"]])
    assert any("Eve_7" in note and "is not named as most entries are (canvas)" in note for note in notes)


STALLS = {
    "thousands of def": "def naive_attention(\n" * 40_000,
    "a parameter list without an end": "def flash_attention_forward(" + "is_causal" * 100_000,
    "spaces": "def naive_attention" + " " * 1_000_000,
}


@pytest.mark.parametrize("text", STALLS.values(), ids=STALLS)
def test_no_text_stalls_the_intake(text, tmp_path):
    (tmp_path / "in" / "ada").mkdir(parents=True)
    (tmp_path / "in" / "ada" / "mine.py").write_text(text[: 1 << 20])
    started = time.process_time()
    intake.take_in(tmp_path / "in", tmp_path / "out", [PROBLEMS["p1"]])
    assert time.process_time() - started < 5


def test_budgets_over_all_of_a_submission(tmp_path, monkeypatch):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", bytes(1 << 20))
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        for n in range(30):
            archive.writestr(f"{n}.zip", inner.getvalue() + bytes(1 << 20))
    monkeypatch.setattr(harvest, "UNPACKED", 4 << 20)
    (submission,), _ = intake.take_in(tmp_path, tmp_path / "out", [PROBLEMS["p1"]])
    assert "unpacks to more than 4 MB" in submission.remarks[0]


@pytest.mark.parametrize(
    "limit, said", [("SECONDS", "takes more than"), ("REMARKS", "More was odd than is said here.")]
)
def test_time_and_remarks_are_bounded(limit, said, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        for n in range(200):
            archive.writestr(f"../{n}.py", "")
    monkeypatch.setattr(harvest, limit, 0.0 if limit == "SECONDS" else 10)
    (submission,), _ = intake.take_in(tmp_path, tmp_path / "out", [PROBLEMS["p1"]])
    assert any(said in remark for remark in submission.remarks) and len(submission.remarks) < 60


TRAPS = {
    "time": (lambda: time.sleep(60), "took more than 1.5 s"),
    "memory": (lambda: bytearray(1 << 31), "MemoryError"),
    "a crash": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "its process was ended"),
    "a mistake of ours": (lambda: {}["x"], "KeyError"),
    "a flood of files": (lambda: (Path.cwd() / "big").write_bytes(bytes(1 << 25)), "File too large"),
}


@pytest.mark.parametrize("what", TRAPS)
def test_a_trap_costs_its_own_submission_alone(what, tmp_path, monkeypatch):
    trap, words = TRAPS[what]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(intake, "LOOK_SECONDS", 1.5)
    look = harvest.look
    monkeypatch.setattr(harvest, "look", lambda path, *rest: trap() if Path(path).name == "bad" else look(path, *rest))
    for name in ("ann", "bad", "zoe"):
        put(tmp_path / "in" / name / P1, f"# {name}\n")
    if what == "a flood of files":  # a disk's errors are the command's affair, and name no student
        with pytest.raises(OSError, match=words):
            take(tmp_path)
        return
    found = take(tmp_path)
    assert said(found["bad"], "could not be looked at", words, "hand in the modules") and not found["bad"].modules
    assert text_of(found["ann"]) == "# ann\n" and text_of(found["zoe"]) == "# zoe\n"


def test_a_trap_that_was_the_machines_is_looked_at_again(tmp_path, monkeypatch):
    look = harvest.look

    def once(path, *rest):
        if not (tmp_path / "mark").exists():
            (tmp_path / "mark").touch()
            raise MemoryError
        return look(path, *rest)

    monkeypatch.setattr(harvest, "look", once)
    put(tmp_path / "in" / "ann" / P1)
    submissions, _ = intake.take_in(tmp_path / "in", tmp_path / "out", ALL[:1])
    assert submissions[0].modules == (P1,) and submissions[0].remarks == ()


def test_nothing_is_left_of_the_intake_that_was_stopped(tmp_path, monkeypatch):
    def stop(found, **more):
        raise KeyboardInterrupt

    put(tmp_path / "in" / "ann" / P1)
    monkeypatch.setattr(intake, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        intake.take_in(tmp_path / "in", tmp_path / "out", ALL[:1])
    assert not multiprocessing.active_children()
