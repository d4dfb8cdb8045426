"""Draws docs/rooms.svg: the packages of grader/ on their floors, and what imports what, as the code has it.

python docs/rooms.py           writes the picture
python docs/rooms.py --check   exit status 1 where the committed picture is not what the code gives
"""

import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
WIDE, HIGH, GAP, LEFT, TOP = 150, 44, 30, 60, 20
APART = 84  # from floor to floor
HOLDS = {
    "__main__": "the command", "test_assignment": "the same by pytest",
    "conftest": "pytest's options", "commands": "show, doctor, ...", "engine": "what all kinds share",
    "render": "terminal, HTML, PNG", "kinds": "what is asked and right", "gpu": "compile, time, profile",
    "score": "points", "unfinished": "replies without a result", "failures": "failures of our own",
    "registry": "kinds and problems by name", "course": "course, problem, gaps",
    "result": "the one result model", "core": "record, run, watch",
}  # fmt: skip


def read_floors():
    """[[room, ...], ...] from the top, as the contract in pyproject.toml has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["grader"])
    return [[room.strip() for room in layer.replace(":", "|").split("|")] for layer in layers]


def read_imports(rooms):
    """{(room, room that it imports)}"""
    import grimp

    sys.path.insert(0, str(ROOT))
    graph = grimp.build_graph("grader", cache_dir=None)
    room_of = {module: module.split(".")[1] for module in graph.modules if "." in module}
    pairs = {
        (room_of[module], room_of[other])
        for module in room_of
        for other in graph.find_modules_directly_imported_by(module)
        if other in room_of
    }
    return sorted((a, b) for a, b in pairs if a != b and a in rooms and b in rooms)


def draw(floors, imports):
    """The picture as text."""
    widest = max(map(len, floors))
    width = 2 * LEFT + widest * WIDE + (widest - 1) * GAP
    corner = {}
    for floor, rooms in enumerate(floors):
        row = len(rooms) * WIDE + (len(rooms) - 1) * GAP
        for i, room in enumerate(rooms):
            corner[room] = (width - row) // 2 + i * (WIDE + GAP), TOP + floor * APART
    height = TOP + len(floors) * APART
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        'font-family="sans-serif" font-size="13">',
        "<title>The rooms of grader/: each imports only rooms on lower floors</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="#8a93a0"/></marker></defs>',
    ]
    for upper, lower in imports:
        (x1, y1), (x2, y2) = corner[upper], corner[lower]
        line = f'x1="{x1 + WIDE // 2}" y1="{y1 + HIGH}" x2="{x2 + WIDE // 2}" y2="{y2 - 2}"'
        parts.append(f'<line {line} stroke="#8a93a0" stroke-opacity="0.55" marker-end="url(#tip)"/>')
    for room, (x, y) in corner.items():
        middle = x + WIDE // 2
        parts += [
            f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="#eef3fa" stroke="#35557f"/>',
            f'<text x="{middle}" y="{y + 18}" text-anchor="middle" font-weight="bold">{room}</text>',
            f'<text x="{middle}" y="{y + 35}" text-anchor="middle" font-size="11">{HOLDS[room]}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def main(argv):
    floors = read_floors()
    text = draw(floors, read_imports({room for floor in floors for room in floor}))
    if argv == ["--check"]:
        return int(PICTURE.read_text(encoding="utf-8") != text)
    PICTURE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
