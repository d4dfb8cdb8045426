"""The modules in what a student handed in: known names alone, and what cannot be understood is said and stays blank."""

import io
import os
import struct
import zipfile

import pytest

from classroom import modules

NAMES = ("p1_naive_attention.py", "p6_sliding_window.py")
P1, P6 = NAMES
TEXT = b"x = 1\n"


def zipped(**files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():  # without a time in it: a test's name has these bytes
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def take(tmp_path, files, name=""):
    """What is taken of a folder with these files: {place: bytes}."""
    for place, data in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(data)
    return modules.take([(tmp_path, name)], NAMES)


@pytest.mark.parametrize("place", [P1, f"homework/src/{P1}", P1.replace(".py", " (1).py"), P1.replace(".py", "-1.py")])
def test_a_module_counts_by_its_name_wherever_it_lies(tmp_path, place):
    taken = take(tmp_path, {place: TEXT, f"solutions/{P1}": b"not theirs", "notes.txt": b"", "other.py": b"y"})
    assert taken.files == {P1: TEXT} and not taken.unread
    assert taken.remarks == [f"Not handed in: {P6}."]


def test_an_archive_is_read_as_a_folder_is(tmp_path):
    names = {f"homework/{P1}": TEXT, f"__MACOSX/homework/._{P1}": b"\0", "report.md": b"# Q1", "hints.json": b"{}"}
    taken = take(tmp_path, {"work.zip": zipped(**names), P6: b"\xef\xbb\xbfy = 2\r\n"})
    assert taken.files == {P1: TEXT, P6: b"y = 2\n", "report.md": b"# Q1"} and not taken.unread


@pytest.mark.parametrize(("data", "words"), [
    ("é".encode("latin-1"), "is not in UTF-8"), (b"# coding: latin-1\nx = 1", "is not in UTF-8"),
    (b"# coding: utf-7\nx = 1", "is not in UTF-8"), ("x = 1".encode("utf-16"), "is not in UTF-8"),
    (b"x = 1\0", "binary data"), (b'{"cells": []}', "notebook under a module's name"),
    (b"x" * (modules.FILE_BYTES + 1), "larger than 1 MB"),
])  # fmt: skip
def test_what_is_no_python_in_utf8_is_not_understood(tmp_path, data, words):
    taken = take(tmp_path, {P1: data, P6: TEXT})
    assert taken.files == {P6: TEXT} and words in taken.unread[P1] and words in " ".join(taken.remarks)


def test_two_of_one_name_at_one_depth_are_not_guessed(tmp_path):
    taken = take(tmp_path, {f"a/{P1}": b"x = 1", f"b/{P1}": b"x = 2", P6: b"top", f"old/{P6}": b"deeper"})
    assert taken.files == {P6: b"top"} and "several times" in taken.unread[P1]
    assert f"{P6} was graded, not old/{P6}." in taken.remarks
    assert take(tmp_path / "same", {f"a/{P1}": TEXT, f"b/{P1}": TEXT}).files == {P1: TEXT}


def encrypted():
    """A zip whose one member says that it is encrypted."""
    data = bytearray(zipped(**{P1: TEXT}))
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = data.index(signature) + place
        data[at : at + 2] = struct.pack("<H", 1)
    return bytes(data)


@pytest.mark.parametrize(("name", "data", "words"), [
    ("work.ipynb", b"{}", "is a notebook or an archive other than zip"),
    ("work.tar.gz", b"", "is a notebook or an archive other than zip"),
    ("work.zip", b"PK no archive", "cannot be read"),
    ("work.zip", zipped(**{"inner.zip": zipped(**{P1: TEXT})}), "an archive in an archive"),
    ("work.zip", zipped(**{f"../{P1}": TEXT}), "outside of its archive"),
    ("work.zip", encrypted(), "is encrypted"),
])  # fmt: skip
def test_what_cannot_be_understood_leaves_what_is_missing_blank(tmp_path, name, data, words):
    taken = take(tmp_path, {name: data, P6: TEXT})
    assert taken.files == {P6: TEXT} and words in taken.unread[P1], taken


def test_a_bomb_is_not_unpacked(tmp_path):
    bomb = zipped(**{P1: bytes(64 << 20)})
    assert len(bomb) < 1 << 20 and "larger than 1 MB" in take(tmp_path, {"work.zip": bomb}).unread[P1]


def test_links_and_pipes_are_not_followed(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_bytes(TEXT)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / P1).symlink_to(secret)
    os.mkfifo(folder / P6)
    taken = modules.take([(folder, "")], NAMES)
    assert not taken.files and taken.unread.keys() == set(NAMES) and "was not followed" in taken.unread[P1]


def test_a_folder_without_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(modules, "ENTRIES", 20)
    taken = take(tmp_path, {f"f{n:02}": b"" for n in range(30)})
    assert "It holds more than 20 files" in taken.unread[P1]
    deep = tmp_path / "deep" / "/".join("d" * 14)
    deep.mkdir(parents=True)
    assert "deep in it" in modules.take([(tmp_path / "deep", "")], NAMES).unread[P1]


def test_a_link_in_an_archive_is_left_out(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        member = zipfile.ZipInfo(P1)
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    assert "a link or a device" in take(tmp_path, {"work.zip": data.getvalue()}).unread[P1]
