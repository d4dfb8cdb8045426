"""What observers report of the kernels of one run, as types."""

from msgspec import Raw, Struct, field

Place = tuple[int, int, int]  # of a program in its grid


class BlockAddress(Struct, frozen=True):
    """Where a block's first lane lies, in elements from its argument's first; its sides; the step along each."""

    first: int
    block: list[int]
    steps: list[int]


class Term(Struct, frozen=True):
    """A product that a kernel's text adds to a pointer. names: the variables in it, made in `lines`; stride: the value
    of the factor that is no number of a program. values: of other names."""

    text: str
    line: int
    names: list[str]
    stride: int | None
    lines: list[int]
    values: dict[str, int]


class Fault(Struct, frozen=True):
    """An access that is not legal, or a number that overflows; the programs are those that did it first.

    where: which part of the block lies outside. shape: of the argument. lanes: of all programs.
    """

    kind: str
    kernel: str
    argument: str
    line: int
    lanes: int
    source: str
    where: str = ""
    programs: list[Place] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    at: BlockAddress | None = None
    terms: list[Term] = field(default_factory=list)


class Undefined(Struct, frozen=True):
    """Lanes of a load that its mask leaves undefined."""

    kernel: str
    argument: str
    line: int
    lanes: int
    source: str


class FirstAccess(Struct, frozen=True):
    """A program's first access to an argument."""

    place: Place
    at: BlockAddress


class AddressTable(Struct, frozen=True):
    """The first accesses of one kind, "load" or "store", to one argument. input: the call's input that it is."""

    argument: str
    input: str | None
    kind: str
    shape: list[int]
    strides: list[int]
    programs: list[FirstAccess]


class InsideRow(Struct, frozen=True):
    """A block of whole rows that begins inside one."""

    row: int
    column: int
    line: int


class KernelCosts(Struct):
    """What one kernel's programs did: bytes by argument, operations by argument, and counts of all."""

    loaded: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    launches: int = 0
    programs: int = 0
    dot_flops: int = 0
    exponentials: int = 0


class Dots(Struct, frozen=True):
    """Multiply-adds of all dots of one form: (rows, depth) times (depth, columns)."""

    rows: int
    columns: int
    depth: int
    count: int

    @property
    def dims(self) -> Place:
        return self.rows, self.columns, self.depth


class Multiplied(Struct, frozen=True):
    """Elements that were multiplied one by one, in all blocks of one shape."""

    shape: list[int]
    count: int


class Costs(Struct):
    """What the kernels cost together.

    computed: elements of all blocks. loaded, stored: elements by live lanes; inputs: those loaded of each input. held:
    the most elements that one program has in blocks at once. different: bytes that kernels with a good part of the
    products load, each counted once.
    """

    dots: list[Dots]
    multiplied: list[Multiplied]
    computed: int
    loaded: int
    stored: int
    inputs: dict[str, int]
    held: int
    different: int


class Most(Struct, frozen=True):
    """The most of a cost that one line causes."""

    amount: int
    line: int | None


class WrapperCosts(Struct):
    """What PyTorch does outside of kernels: elements touched, multiply-adds, numbers of four bytes in tensors that are
    made, elements of the largest one. lines: by the name of the cost."""

    touched: int = 0
    multiply_adds: int = 0
    made: int = 0
    largest: int = 0
    lines: dict[str, Most] = field(default_factory=dict)


class TraceReport(Struct):
    """All that was observed of one run. own: what the course's own observer reports. failed: tracebacks of what
    changes no verdict."""

    faults: list[Fault]
    undefined: list[Undefined]
    addresses: list[AddressTable]
    inside_rows: dict[str, InsideRow]
    kernels: dict[str, KernelCosts]
    costs: Costs
    own: Raw = Raw(b"null")
    failed: list[str] = field(default_factory=list)
