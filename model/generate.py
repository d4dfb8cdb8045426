"""The command behind `make generate`: the model writes with a student's kernels, and the same is done by SDPA.

    make generate SUBMISSION=problems PROMPT="def "
    python -m model.generate --device cuda --prompts --tokens 1000      20 fixed prompts, on a GPU

The prompt goes through the highest of P5 to P7 that is solved; each further token through X4 where that is solved, else
the whole text is computed again. Exit status 0 the tokens are SDPA's, 1 they are not, 2 arguments, 130 stopped.
"""

import os
import sys
import time
from pathlib import Path

import torch

from grader.commands import versions
from grader.commands.arguments import BadArguments, Parser, check_sandbox, choose_device
from grader.core.sandbox import bubblewrap, handed_in, scratch
from grader.core.sandbox.child import CannotStart
from grader.core.sandbox.texts import clean
from grader.course import course
from model import weights
from model.kernels import DECODE, PREFILL, Kernel, KernelFailed
from model.transformer import START
from model.writing import BACKENDS, DTYPE, SUSPECT, ByBackend, Writer, compare

PROMPTS, TOKENS = Path(__file__).with_name("prompts.txt"), 20
# Of several tiles of keys, so that the prompt's kernel rescales.
PROMPT = "class Node:\n    def __init__(self, name, parent=None):\n        self.name = name\n        self."
EVERY = 50  # tokens between two lines where several prompts are written


def parse(argv):
    parser = Parser(prog="python -m model.generate", description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--submission", type=Path, default=course.current().students, help="default: problems/")
    parser.add_argument("--problems", default="", metavar="NUMBER", help="prefill by this one of P5 to P7")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one")
    parser.add_argument("--prompt", default=PROMPT, help="what the text begins with")
    parser.add_argument("--prompts", action="store_true", help=f"the prompts of {PROMPTS.name}, side by side")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="that are written; a token is a byte")
    parser.add_argument("--model", default="full", help="a name, or a file of weights")
    return parser.parse_args(parser.take_from_make(argv))


def read_prompts(options, device):
    """The prompts as tokens, START before each: (N,) int64."""
    texts = PROMPTS.read_text(encoding="utf-8").splitlines() if options.prompts else [options.prompt]
    if not all(texts):
        raise BadArguments("a prompt must have at least one letter")
    return [torch.tensor([START, *text.encode()], device=device) for text in texts]


def choose_prefill(folder, device, asked, model):
    """The Kernel of the highest problem whose gaps are filled and whose first call returns; raises BadArguments."""
    entries = [entry for entry in PREFILL if not asked or entry.id.removeprefix("p") == asked.lower().removeprefix("p")]
    if not entries:
        raise BadArguments(f"the prompt goes through P5, P6 or P7; got {asked!r}")
    said = []
    for entry in entries:
        kernel = first_call(entry, folder, device, lambda kernel: kernel.attend(*inputs(model, device)), said)
        if kernel:
            return kernel, said
    raise BadArguments(f"none of P5 to P7 can be called: {'; '.join(said)}")


def choose_decode(folder, device, model):
    """The Kernel of X4, or None where it is not solved; and why."""
    said = []
    q, k, v = inputs(model, device)
    lengths = torch.tensor([k.shape[2]], dtype=torch.int32, device=device)
    return first_call(DECODE, folder, device, lambda kernel: kernel.decode(q[:, :, -1:], k, v, lengths), said), said


def first_call(entry, folder, device, call, said):
    """The Kernel whose first call returns, or None, and a sentence more in `said`."""
    if not (folder / entry.module).is_file():
        said.append(f"{entry.module} is not there")
        return None
    kernel = Kernel(entry, folder, device)
    try:
        call(kernel)
        return kernel
    except KernelFailed as failure:
        kernel.close()
        said.append(f"{entry.id} is not solved: {failure}" if failure.unfinished else f"{entry.id} fails: {failure}")
        return None


def inputs(model, device):
    """q, k and v of the model's form."""
    shape = model.shape
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, heads, 5, shape.head_dim, generator=generator).to(device, DTYPE)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    ]


def write(model, prefill, decode, prompts, steps, device):
    """Write, show it as it comes, and say how it compares; the exit status."""
    room = max(map(len, prompts)) + steps
    theirs = Writer(model, prefill.attend, decode and decode.decode, room)
    one, other = (ByBackend(model, name, room) for name in BACKENDS[device])
    texts, started, alone = [bytes(prompt[1:].tolist()) for prompt in prompts], time.perf_counter(), len(prompts) == 1
    show(texts[0]) if alone else None
    try:
        for tokens, found in compare(theirs, one, other, prompts, steps):
            texts = [text + bytes([token]) for text, token in zip(texts, tokens.tolist(), strict=True)]
            if alone and not found.wrong:
                show(texts[0][-1:])
            elif not alone and found.steps % EVERY == 0:
                print(f"token {found.steps} of {steps} of {len(texts)} prompts, {found.ties} ties, "
                      f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
    except KernelFailed as failure:
        print(f"\n{clean(str(failure))}")
        return 1
    print("\n" if alone else "", end="")
    print(result(found, texts, device, time.perf_counter() - started))
    return 1 if found.wrong else 0


def show(text):
    """A part of the text, as it is written; what is no letter by its escape."""
    print(clean(text.decode("ascii", "backslashreplace")), end="", flush=True)


def result(found, texts, device, seconds):
    """The last lines."""
    one, other = (name.lower().removesuffix("_attention") for name in BACKENDS[device])
    apart = f"SDPA's {one} and {other} differ by up to {found.apart:.2g}"
    if wrong := found.wrong:
        of = f" of prompt {wrong.row + 1}" if len(texts) > 1 else ""
        write = f"write {bytes([wrong.token])!r}; your logits differ by up to {wrong.far:.2g}"
        return (
            f"wrong at token {wrong.step + 1}{of}, after {texts[wrong.row][-41:-1]!r}: SDPA writes "
            f"{bytes([wrong.wanted])!r}, your kernels {write if wrong.far == wrong.far else 'give NaN'}.\n"
            f"SDPA's two best logits are {wrong.gap:.2g} apart, and {apart}."
        )
    said = f"{found.steps * len(texts)} tokens, the same by SDPA, in {seconds:.0f} s."
    said += f" Your logits differ by up to {found.far:.2g}; {apart}."
    if found.ties:
        said += f"\n{found.ties} tokens differ where SDPA's two best logits are closer than that."
    if found.suspect:
        said += f"\nYours is more than {SUSPECT:g} times as much: make grade says whether your kernels are right."
    return said


def main(argv):
    try:
        options = parse(argv)
        check_sandbox()
        if not options.submission.is_dir():
            raise BadArguments(f"the submission folder {options.submission} is not there")
        if options.tokens < 1:
            raise BadArguments(f"--tokens must be at least 1; got {options.tokens}")
        device = choose_device(options.device)
        for warning in filter(None, (versions.warning(), bubblewrap.new_warning(device))):
            print(warning, file=sys.stderr)
        model = weights.load(options.model, device)
        prompts = read_prompts(options, device)
        torch.set_num_threads(1)
        with handed_in.readable(options.submission.resolve()) as folder, torch.no_grad():
            prefill, said = choose_prefill(folder, device, options.problems, model)
            decode, why = choose_decode(folder, device, model)
            for line in (*said, *why):
                print(clean(line))
            by = "decode by x4" if decode else "each token by the whole text anew"
            print(f"prefill by {prefill.entry.id}, {by}; the same by SDPA", flush=True)
            return write(model, prefill, decode, prompts, options.tokens, device)
    except (BadArguments, weights.BadWeights, CannotStart) as error:
        print(clean(f"generate: {error}"), file=sys.stderr)
        return 2


if __name__ == "__main__":
    scratch.choose_own_folder()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
        os._exit(130)
