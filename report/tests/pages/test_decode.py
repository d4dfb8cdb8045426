"""The page on decode: what it says of rows, and the committed ones."""

import csv
import json

from report.pages import decode
from report.places import PUBLISHED
from report.studies.decode import COLUMNS, OURS, PLAIN, SHAPES

LONG, WIDE = "B=1 H=32/8 D=128 N=16384", "B=32 H=32/8 D=128 N=4096"


def line(shape, kernel, form="", us=100.0, over_cudnn="", of_copy="", over_plain="", fault=""):
    values = {"shape": shape, "kernel": kernel, "form": form, "fault": fault, "us": us, "mib": 64.0, "gb_s": 4000.0,
              "host_us": 31.5 if kernel == "x4" and not form else ""}  # fmt: skip
    for name, middle in {"over_cudnn": over_cudnn, "of_copy": of_copy, "over_plain": over_plain}.items():
        ends = (middle, middle - 0.01, middle + 0.01) if middle else ("", "", "")
        values |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return [values[name] for name in COLUMNS]


def made(folder, *lines):
    with open(folder / "decode.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *lines])
    (folder / "decode.json").write_text(json.dumps({"gpu": "a GPU", "rounds": 21}), "utf-8")
    return decode.files(folder)


X4_ALONE = (
    line(LONG, "cudnn", us=110.0, of_copy=0.9), line(LONG, "copy", us=99.0),
    line(LONG, "x4", over_cudnn=1.1, of_copy=0.99), line(LONG, "x4", "pages of 16", over_plain=1.024),
    line(LONG, "x4", "pieces of 512", us=95.0, over_plain=0.95),
    line(LONG, "x4", "pieces of 256", us=98.0, over_plain=0.98),
    line(WIDE, "cudnn", us=95.0, of_copy=0.95), line(WIDE, "x4", over_cudnn=0.95, of_copy=0.91),
    line(WIDE, "x4", "sink logit", over_plain=1.004),
    line(WIDE, "x4", "window 1024", us=9.0, of_copy=0.8, over_plain=0.1),
)  # fmt: skip


def test_the_page_says_what_the_rows_say(tmp_path):
    files = made(tmp_path, *X4_ALONE)
    text, words = files["DECODE.md"], " ".join(files["DECODE.md"].split())
    assert f"At the least X4 has 91 % of the copy's bandwidth ({WIDE}). It is slower than cuDNN at {WIDE}." in words
    assert f"| {LONG} | pages of 16 | 1.024 (1.014 to 1.034) |" in text and "fast, us" not in text
    assert f"| {WIDE} | window 1024 | X4 | 64.0 | 9.00 | 80 % (79 to 81) | 0.10 (0.09 to 0.11) |" in text
    assert f"| {LONG} | X4 | 100 | 95.0 | 512 | 0.950 (0.940 to 0.960) |" in text and "| 256 |" not in text
    assert f"At most they cost X4 5.3 % of the time by share ({LONG})." in words and "| 31.5 |" in text
    picture = files["figures/decode.svg"]
    assert {"cuDNN", "X4"} <= set(decode_words(picture)) and "fast" not in decode_words(picture)


def decode_words(svg):
    return [part.partition("<")[0] for part in svg.split(">")]


def test_the_fast_form_comes_first_once_it_has_rows(tmp_path):
    files = made(tmp_path, *X4_ALONE, line(LONG, "fast", over_cudnn=1.2, of_copy=0.93),
                 line(WIDE, "fast", of_copy=0.94),
                 line(WIDE, "fast", "pieces of 512", us="", fault="wrong: by far"))  # fmt: skip
    words = " ".join(files["DECODE.md"].split())
    assert "At the least fast has 93 %" in words and "It is slower than cuDNN in none of the 1 rows with both." in words
    assert "The copy itself has 4,000 to 4,000 GB/s" in words
    assert f"Not measured: {WIDE}, fast pieces of 512: wrong: by far." in words
    assert "they cost" not in words.partition("## The host")[0].partition("## What the same bits cost")[2].replace(
        "what the same bits cost", "")  # fmt: skip


def test_the_committed_rows_have_every_shape_and_form():
    rows, facts = decode.load(PUBLISHED)
    assert rows and facts["gpu"] == "NVIDIA H200" and not any(row["fault"] for row in rows.values())
    for shape in SHAPES:
        for kernel in OURS:
            assert {(shape.name, kernel, form.name) for form in (PLAIN, *shape.forms)} <= set(rows)
