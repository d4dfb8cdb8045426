"""The model writes with kernels in the sandbox: right ones, wrong ones, and files where gaps are open."""

import re
from pathlib import Path

import pytest

from grader.tests.submissions.broken import mistakes
from grader.tests.support import SUBMISSIONS
from model import generate, weights
from model.kernels import PREFILL
from model.tests.test_transformer import make

ROOT = Path(__file__).parents[2]
SOLUTIONS, SKELETONS = ROOT / "solutions", ROOT / "problems"
MODULES = {entry.id: entry.module for entry in PREFILL} | {"x4": "x4_decode.py"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "some.safetensors"
    weights.save(path, make())
    return path


def submit(folder, change=("", ""), solved=("p5",), begun=()):
    """A submission: `solved` are solutions, of the first of which `change` is replaced; `begun` are skeletons."""
    for id in (*solved, *begun):
        text = ((SOLUTIONS if id in solved else SKELETONS) / MODULES[id]).read_text("utf-8")
        assert change[0] in text or id != solved[0]
        (folder / MODULES[id]).write_text(text.replace(*change) if id == solved[0] else text, "utf-8")
    return folder


def run(folder, model, *options):
    return generate.main(
        ["--submission", str(folder), "--model", str(model), "--device", "cpu", "--tokens", "6", *options]
    )


def test_right_kernels_write_what_sdpa_writes(tmp_path, model, capsys):
    assert run(submit(tmp_path, begun=("p7",)), model) == 0
    said = capsys.readouterr().out
    assert "p7 is not solved: TODO 1" in said and "p6_sliding_window.py is not there" in said
    assert "prefill by p5, each token by the whole text anew" in said
    assert "6 tokens, the same by SDPA" in said and "more than" not in said
    assert generate.PROMPT in said


def test_the_highest_that_is_solved_takes_the_prompt(tmp_path, model, capsys):
    assert run(submit(tmp_path, solved=("p5", "p6", "p7")), model) == 0
    assert "prefill by p7" in capsys.readouterr().out
    assert run(tmp_path, model, "--problems", "6") == 0
    assert "prefill by p6" in capsys.readouterr().out


def test_a_wrong_kernel_is_named_at_its_token(tmp_path, model, capsys):
    folder = submit(tmp_path, ("kv_head = head // group", "kv_head = head % (tl.num_programs(1) // group)"))
    assert run(folder, model) == 1
    said = capsys.readouterr().out
    assert "wrong at token 1, after b" in said and "your logits differ by up to" in said


def test_a_kernel_that_gives_nan_is_named(tmp_path, model, capsys):
    assert run(submit(tmp_path, ("o = acc / row_sum[:, None]", "o = acc / (row_sum - row_sum)[:, None]")), model) == 1
    assert "your kernels give NaN" in capsys.readouterr().out


def test_a_kernel_that_raises_while_it_writes_says_where(tmp_path, model, capsys):
    late = "    B, Hq, N, D = q.shape\n"
    assert run(submit(tmp_path, (late, f"{late}    assert N < 80, 'too long'\n")), model) == 1
    said = capsys.readouterr().out
    assert "too long" in said and "p5_gqa.py" in said


@pytest.mark.parametrize(
    "returned, words", [("return q[:1, :1]", "must return one tensor"), ("return o, o", "returned")]
)
def test_another_form_is_no_tensor_of_the_model(tmp_path, model, capsys, returned, words):
    assert run(submit(tmp_path, ("    return o\n", f"    {returned}\n")), model) == 2
    assert words in capsys.readouterr().err


def test_a_problem_without_the_models_window_cannot_serve_it(tmp_path, capsys):
    weights.save(tmp_path / "window.safetensors", make(window_size=5))
    folder = submit(tmp_path, solved=("p5", "p6"))
    assert run(folder, tmp_path / "window.safetensors", "--problems", "5") == 1
    assert "p5 has no window_size, which this model needs" in capsys.readouterr().out
    assert run(folder, tmp_path / "window.safetensors", "--problems", "6") == 0


def test_where_nothing_is_solved_it_says_so(model, capsys):
    assert run(SKELETONS, model) == 2
    said = capsys.readouterr().err
    assert said.count("is not solved: TODO") == 3


def test_several_prompts_side_by_side(tmp_path, model, capsys, monkeypatch):
    few = tmp_path / "few.txt"
    few.write_text("def\nclass Node:\n", "utf-8")
    monkeypatch.setattr(generate, "PROMPTS", few)
    monkeypatch.setattr(generate, "EVERY", 2)
    assert run(submit(tmp_path), model, "--prompts") == 0
    said = capsys.readouterr().out
    assert "token 4 of 6 of 2 prompts" in said and "12 tokens, the same by SDPA" in said


def test_there_are_twenty_fixed_prompts():
    prompts = generate.PROMPTS.read_text("utf-8").splitlines()
    assert len(prompts) == len(set(prompts)) == 20 and all(prompt == prompt.rstrip() != "" for prompt in prompts)


@pytest.mark.skipif(not (SOLUTIONS / MODULES["x4"]).is_file(), reason="there is no x4")
@pytest.mark.parametrize("change, status", [(("", ""), 0), (("    return o\n", "    return o * -1.0\n"), 1)])
def test_decoding_by_x4(tmp_path, model, capsys, change, status):
    assert run(submit(tmp_path, change, solved=("x4", "p5")), model) == status
    said = capsys.readouterr().out
    assert "decode by x4" in said
    assert re.search("wrong at token [2-6]" if status else "6 tokens, the same by SDPA", said)


HONEST = {form.name: form for form in mistakes.read(SUBMISSIONS / "honest" / "x4_forms.txt")}
WRONG = {form.name: form for form in mistakes.read(SUBMISSIONS / "broken" / "decode.txt")}


def submit_form(folder, form):
    """A solved P5 and a form of X4."""
    submit(folder)
    (folder / MODULES["x4"]).write_text(form.apply((SOLUTIONS / MODULES["x4"]).read_text("utf-8")), "utf-8")
    return folder


@pytest.mark.parametrize("name", ["natural exponentials", "the merge in one loop that rescales"])
def test_an_honest_form_of_x4_writes_what_sdpa_writes(tmp_path, model, capsys, name):
    assert run(submit_form(tmp_path, HONEST[name]), model) == 0
    said = capsys.readouterr().out
    assert "decode by x4" in said and "6 tokens, the same by SDPA" in said and "more than" not in said


def test_a_merge_without_weights_is_named_where_there_are_two_pieces(tmp_path, model, capsys):
    folder = submit_form(tmp_path, WRONG["the mean of the pieces"])
    assert run(folder, model, "--prompt", "def ") == 0
    capsys.readouterr()
    assert run(folder, model) == 1
    said = capsys.readouterr().out
    token, far = re.search(r"wrong at token (\d+), .* your logits differ by up to (\S+)\.\n", said).groups()
    apart = re.search(r"SDPA's math and flash differ by up to (\S+)\.", said).group(1)
    assert 2 <= int(token) <= 6 and float(far) > generate.SUSPECT * float(apart)  # the first token is P5's


def test_bad_arguments_are_a_sentence(tmp_path, model, capsys):
    assert run(tmp_path / "none", model) == 2 and run(submit(tmp_path), tmp_path / "none") == 2
    assert run(tmp_path, model, "--problems", "3") == 2 and run(tmp_path, model, "--tokens", "0") == 2
    assert run(tmp_path, model, "--prompt", "") == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("grader: ")]  # of the machine
    assert len(lines) == 5 and all(line.startswith("generate: ") for line in lines), lines


def test_makes_variables_are_options(monkeypatch):
    for name, value in {"PROMPT": "def ", "TOKENS": "3", "SUBMISSION": "here", "P": "6"}.items():
        monkeypatch.setenv(name, value)
    told, alone = generate.parse(["--from-make"]), generate.parse([])
    assert (told.prompt, told.tokens, str(told.submission), told.problems) == ("def ", 3, "here", "6")
    assert (alone.prompt, alone.tokens) == (generate.PROMPT, generate.TOKENS)
