"""What Triton says of a kernel that it does not compile -> words that say what to do."""

import re

PLAIN_WORDS = (
    (r"Boolean value of Tensor with more than one value", "`if`, `while`, `and`, `or` and `not` take one number, and "
     "this is a whole block: choose with tl.where, and combine with &, | and ~"),
    (r"multiple comparison is not supported", "a comparison like a <= b < c is not compiled: write (a <= b) & (b < c)"),
    (r"Input shapes should have (.*)", "the tiles of this tl.dot are too small: it needs {0}"),
    (r"(?:must be real number, not tensor|(?:float|int)\(\) argument must be)", "a function of Python is called on a "
     "value that only the GPU knows: use that of tl, or compute it before the launch"),
    (r"Unsupported function referenced: <(?:built-in method|function|built-in function) (\w+)", "a kernel cannot call "
     "`{0}`: only functions of tl and your own @triton.jit functions"),
    (r"Cannot access global variable (\w+)", "the global variable {0} is no constant for the compiler: write "
     "{0} = tl.constexpr(...), or pass it as an argument"),
    (r"unsupported AST node type: (?P<syntax>Break|Continue)", "`{syntax}` is not compiled: put the condition into the "
     "loop's bounds, or use a mask"),
    (r"unsupported AST node type: (?P<syntax>\w+)", "Python's `{syntax}` is not compiled inside a kernel"),
    (r"cannot convert (.*) of type <class 'str'> to tensor", "the string {0!r} is no value that a kernel can hold"),
    (r"only tuple comprehensions", "a list comprehension is not compiled: use tl.static_range"),
    (r"Loop-carried variable (\w+) has initial type (.+) but is re-assigned to (.+) in loop", "{0} changes its type in "
     "a loop: it is {1} before and {2} after one round; give it one type and shape"),
    (r"Mismatched type for (\w+) between then block \((.+)\) and else block \((.+)\)", "{0} has two types: {1} after "
     "the `if`, {2} after the `else`; give it one type and shape"),
    (r"^(\w+) is not defined", "{0} is not defined here: give it a value before the loop or `if` that sets it"),
    (r"unsupported tensor index", "a block cannot be indexed or sliced by position: only [:, None] and [None, :]"),
    (r"__setitem__ is not supported", "a block cannot be changed in place: build a new one with tl.where"),
    (r"must be of type tl.constexpr", "{text}: the size must be a `tl.constexpr` argument"),
    (r"ptxas fatal.*[Mm]emory", "ptxas, NVIDIA's assembler, ran out of memory: smaller tiles and fewer unrolled loops "
     "need less"),
    (r"failed to legalize unresolved materialization", "Triton's compiler gave up on this function: does it `return` "
     "values before its end? Choose between them with tl.where, or with if and else"),
    (r"PassManager::run failed", "Triton's compiler gave up on it and names no place"),
)  # fmt: skip


def in_plain_words(text):
    """Triton's words, said so that a student knows what to do; as they are where nothing better is known."""
    wrapped = re.fullmatch(r"\w+\((['\"])(.*)\1\)", text.strip(), re.DOTALL)
    assembler = re.search(r"ptxas (?:fatal|error)\s*: *(.*)", text)
    text = first_line(assembler[0] if assembler else wrapped[2] if wrapped else text).rstrip(".")
    for pattern, words in PLAIN_WORDS:
        if found := re.search(pattern, text):
            syntax = found.groupdict().get("syntax", "").lower()
            return words.format(*map(type_name, found.groups()), text=text, syntax=syntax)
    return text


def type_name(text):
    """`<['128'], fp32>` -> `a block (128) of fp32`."""
    found = re.fullmatch(r"<\[(.*)\], (\w+)>", text)
    return f"a block ({found[1].replace(chr(39), '')}) of {found[2]}" if found else text


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or ["no words"])[0][:300]
