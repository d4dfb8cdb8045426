"""Inside the child: where the numbers of a call come from, storage by storage, and what PyTorch did with them.

A storage is labelled with what it was made of: "q", "k" and "v" by PyTorch alone, "kernel" where a launch stored it,
"?" where nobody saw how it came to be. Operations are seen by a dispatch mode, below the interpreter, also inside jit
functions; stores by the trace. What changes a storage unseen shows, because its bytes are remembered. Nothing is judged
here: the parent holds these notes against what a wrapper may do (grader/honesty.py).
"""

import hashlib
import sys
import types
from collections import Counter

import torch
from storages import KERNEL, NOTHING, UNKNOWN, UNSEEN, Note, bytes_of, place, tensors_of, unseen, written_by

OVERWRITES = {"copy_", "fill_", "zero_", "set_"}  # what stood there before plays no part
ARITHMETIC = {"mul", "mul_", "div", "div_", "add", "add_", "sub", "sub_", "where", "masked_fill", "masked_fill_"}
CONTRACTIONS = {"mm", "bmm", "addmm", "baddbmm", "_int_mm", "addbmm", "mv", "dot", "addmv"}
PLAIN = (torch.Tensor, torch.nn.Parameter)
OUTSIDE = {"numpy", "scipy", "ctypes", "gc", "sys", "inspect"}


class Names:
    """Of a problem that is solved in PyTorch, where tensors may meet as they like: which operations were called."""

    def __init__(self):
        self.operations = Counter()

    def about_to(self, func, args, kwargs):
        pass

    def saw(self, func, args, kwargs, out):
        self.operations[func.overloadpacket.__name__] += 1

    def report(self, outputs):
        blank = {"line": 0, "in_program": False, "labels": [], "operands": 0, "elements": 0}
        return {"operations": [{"name": name, "calls": calls} | blank for name, calls in self.operations.items()]}


class Ledger:
    """The notes of one call. inputs: q, k, v. watched: bytes are remembered, which only the interpreter can afford."""

    def __init__(self, inputs, module, watched=True):
        self.notes, self.module, self.watched = {}, module, watched
        for role, tensor in zip("qkv", inputs, strict=True):
            self.notes[place(tensor)] = Note(tensor.untyped_storage(), frozenset(role), remember=False)
        self.operations, self.elements = Counter(), Counter()
        self.launching = self.in_program = False
        self.behind, self.strange, self.foreign, self.raised, self.faults = set(), set(), [], [], set()

    # What PyTorch does ------------------------------------------------------------------------------------------------

    def saw(self, func, args, kwargs, out):
        """One operation, after it ran. What cannot be followed is our fault: it is told, and stops nothing."""
        try:
            self.follow(func, args, kwargs, out)
        except Exception as error:
            self.faults.add(f"{func}: {type(error).__name__}: {error}"[:200])

    def follow(self, func, args, kwargs, out):
        name = func.overloadpacket.__name__
        if self.launching and not self.in_program:  # the interpreter's own
            return
        given, made = tensors_of((args, kwargs)), tensors_of(out)
        here = {place(tensor) for tensor in given}
        written = written_by(func, args, kwargs) if func._schema.is_mutable else []
        fresh = [tensor for tensor in made if place(tensor) not in here]
        if self.in_program:
            self.count(name, (), 0)
        if not written and not fresh:
            return
        sources = given[len(written) :] if name in OVERWRITES else given
        targets = {place(tensor) for tensor in written}
        labels = [self.label_of(tensor, place(tensor) not in targets) for tensor in sources]
        if name in ARITHMETIC:  # a few numbers that scale what is there are no origin of it
            few = min(tensor.numel() for tensor in made or written) // 8
            labels = [
                NOTHING if label == UNSEEN and tensor.numel() <= few else label
                for tensor, label in zip(sources, labels, strict=True)
            ]
        self.weigh(name, sources, labels, made or written)
        label = NOTHING.union(*labels)
        for tensor in written:
            self.overwrite(tensor, label)
        for tensor in fresh:
            self.notes[place(tensor)] = Note(tensor.untyped_storage(), label, self.watched)

    def weigh(self, name, sources, labels, made):
        """Count what was done with tensors of more than one element; booleans are masks, and count for nothing."""
        if not made or all(tensor.dtype == torch.bool for tensor in made):
            return
        many = [
            (tensor, label)
            for tensor, label in zip(sources, labels, strict=True)
            if label and tensor.numel() > 1 and tensor.dtype != torch.bool
        ]
        if many:
            elements = max(tensor.numel() for tensor in (*made, *(tensor for tensor, _ in many)))
            if name in CONTRACTIONS:
                elements = made[0].numel() * sources[-2].shape[-1]
            self.count(name, tuple(sorted({"+".join(sorted(label)) for _, label in many})), elements, len(many))

    def count(self, name, labels, elements, operands=0):
        key = name, self.line(), self.in_program, labels, min(operands, 2)
        self.operations[key] += 1
        self.elements[key] += elements

    def label_of(self, tensor, checked=True):
        """What `tensor` was made of; a single number that was there before counts for nothing."""
        note = self.notes.get(place(tensor))
        if note is None:
            return UNSEEN if tensor.numel() > 1 else NOTHING
        if checked:
            self.check(note)
        return note.label_of(tensor)

    def check(self, note):
        """Something changed the storage that neither an operation nor a launch was seen to write to."""
        if note.changed():
            self.behind.add(self.line())
            note.remember()

    def about_to(self, func, args, kwargs):
        """One operation, before it runs: what it writes to must be as it was left."""
        if func._schema.is_mutable and not self.launching:
            for tensor in written_by(func, args, kwargs):
                if note := self.notes.get(place(tensor)):
                    self.check(note)

    def overwrite(self, tensor, label):
        note = self.notes.get(place(tensor))
        if note is None:
            note = self.notes[place(tensor)] = Note(tensor.untyped_storage(), UNSEEN, remember=False)
        note.write(label, tensor.element_size(), tensor=tensor)
        if self.watched and place(tensor) not in self.inputs():
            note.remember()

    def inputs(self):
        return list(self.notes)[:3]

    # What launches do -------------------------------------------------------------------------------------------------

    def begin_launch(self, arguments):
        """arguments: {address of a storage: [(name, tensor)]}; returns {address: what is foreign to this call}."""
        foreign = {}
        self.launching = True
        if not self.watched:
            return foreign
        with unseen():
            for key, named in arguments.items():
                for name, tensor in named:
                    if UNKNOWN in self.label_of(tensor) and tensor.numel() > 1:
                        digest = hashlib.blake2b(bytes_of(tensor), digest_size=16).hexdigest()
                        foreign[key] = name, digest
        return foreign

    def end_launch(self, stored):
        """stored: [(a tensor of the storage, bytes of an element, booleans: which elements)]."""
        self.launching = self.in_program = False
        for tensor, itemsize, mask in stored:
            self.store(tensor, itemsize, mask)

    def store(self, tensor, itemsize, mask):
        with unseen():
            note = self.notes.get(place(tensor))
            if note is None:
                note = self.notes[place(tensor)] = Note(tensor.untyped_storage(), UNSEEN, False)
            note.write(frozenset({KERNEL}), itemsize, mask=torch.as_tensor(mask).cpu())
            note.remember()

    def loaded(self, kernel, foreign):
        """A launch loaded what nobody saw being made."""
        entry = [kernel, *foreign]
        if entry not in self.foreign:
            self.foreign.append(entry)

    # The end ----------------------------------------------------------------------------------------------------------

    def line(self):
        """The line of the submission's own file that is running, or 0."""
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.module:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def report(self, outputs):
        """Plain data for the reply."""
        labels = [sorted(self.label_of(out)) for out in tensors_of(outputs) if type(out) in PLAIN]
        names = ("name", "line", "in_program", "labels", "operands")
        return {
            "operations": [
                dict(zip(names, key, strict=True)) | {"calls": calls, "elements": self.elements[key]}
                for key, calls in self.operations.items()
            ],
            "outputs": labels, "behind": sorted(self.behind), "strange": sorted(self.strange),
            "foreign": self.foreign, "raised": self.raised, "faults": sorted(self.faults),
        }  # fmt: skip


def strange(kernel, module):
    """What of Python a kernel, or a function of its module that it calls, reaches for and no GPU can: {"numpy"}."""
    found, seen, left = set(), set(), [kernel]
    while left:
        function = left.pop()
        function = getattr(function, "fn", function)
        if not isinstance(function, types.FunctionType) or function in seen or function.__code__.co_filename != module:
            continue
        seen.add(function)
        found |= {"a tensor's handle"} if "handle" in function.__code__.co_names else set()
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in OUTSIDE:
                found.add(value.__name__)
            elif isinstance(getattr(value, "fn", value), types.FunctionType):
                left.append(value)
    return found
