"""Write the generated parts of docs/architecture.md: the table of the rooms, and their picture.

python scripts/architecture.py    # after a change to the imports

A room is a module or package directly under `lkgp`. Their order is that of the layers in pyproject.toml, and their
imports are read from the import graph. The text between the markers of the page is replaced; all else is left alone.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
SOURCE = ROOT / "src"
BEGIN, END = "<!-- rooms: written by scripts/architecture.py -->", "<!-- end of rooms -->"
CONTRACT = "Data flows one way"


@dataclass(frozen=True)
class Room:
    """A part of the library.

    name: without "lkgp."; that of the package itself is "lkgp"
    purpose: the first line of its docstring
    files, lines: of source
    imports: names of other rooms, from the top of the house to the bottom
    """

    name: str
    purpose: str
    files: int
    lines: int
    imports: tuple[str, ...]


# Reading


def room_of(module: str) -> str:
    """The room of a module: "inference" of "lkgp.inference.base"."""
    return module.split(".")[1] if "." in module else module


def read_imports() -> dict[str, set[str]]:
    """Which rooms every room imports directly."""
    graph = grimp.build_graph("lkgp", cache_dir=None)
    found: dict[str, set[str]] = {room_of(module): set() for module in graph.modules}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if room_of(imported) != room_of(module):
                found[room_of(module)].add(room_of(imported))
    return found


def read_layers(imports: dict[str, set[str]]) -> list[list[str]]:
    """The rooms by layer, from the top; one that the contract does not list is put just above all that it imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (listed,) = [contract["layers"] for contract in contracts if contract["name"] == CONTRACT]
    layers = [[room_of(name) for name in re.split(r"\s*[|:]\s*", layer)] for layer in listed]
    for room in sorted(set(imports) - {name for layer in layers for name in layer}):
        depths = [depth for depth, layer in enumerate(layers) if imports[room] & set(layer)]
        layers.insert(min(depths, default=len(layers)), [room])
    return layers


def read_rooms() -> list[list[Room]]:
    """All rooms by layer, from the top."""
    imports = read_imports()
    layers = read_layers(imports)
    order = [name for layer in layers for name in layer]
    return [[read_room(name, sorted(imports[name], key=order.index)) for name in layer] for layer in layers]


def read_room(name: str, imports: Iterable[str]) -> Room:
    """What the source of a room says about it."""
    folder = SOURCE / "lkgp" / name
    if name == "lkgp":
        paths = [SOURCE / "lkgp" / "__init__.py"]
    else:
        paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    first = folder / "__init__.py" if folder.is_dir() else paths[0]
    text = first.read_text()
    docstring = text.split('"""')[1] if text.startswith('"""') else ""
    purpose = docstring.strip().split("\n\n")[0].replace("\n", " ")
    lines = sum(len(path.read_text().splitlines()) for path in paths)
    return Room(name, purpose, len(paths), lines, tuple(imports))


# The table


def table(layers: list[list[Room]]) -> str:
    """The rooms as a Markdown table, from the top of the house to the bottom."""
    rows = ["| room | what it is | files | lines, about | imports |", "|---|---|---|---|---|"]
    for room in (room for layer in layers for room in layer):
        name = room.name if room.name == "lkgp" else f"lkgp.{room.name}"
        lines = int(float(f"{room.lines:.1e}"))  # two digits, so that small changes do not show
        rows.append(f"| `{name}` | {room.purpose} | {room.files} | {lines} | {', '.join(room.imports)} |")
    return "\n".join(rows)


def generated(layers: list[list[Room]]) -> str:
    """The part of the page between the markers, markers included."""
    return f"{BEGIN}\n\n![The rooms by layer]({PICTURE.name})\n\n{table(layers)}\n\n{END}"


def with_generated(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{part}{after}"


# The picture: every layer is a row, and an arrow leads to each room that is not also imported by way of another one.

Node = tuple[str, int]  # a room, or an arrow that passes a layer, with the number of the layer
Edge = tuple[Node, Node]

BOX_HEIGHT, ROW, MARGIN, GAP = 26, 54, 20, 26
CHARACTER = 8.2  # width, at the font size of the picture
PASSING = 10  # width that an arrow takes in a layer which it passes
SWEEPS = 60  # of the layout, which settles long before


def direct_arrows(layers: list[list[Room]]) -> list[tuple[str, str]]:
    """The imports that are left when those that other imports imply are taken away."""
    imports = {room.name: set(room.imports) for layer in layers for room in layer}

    def reaches(start: str, goal: str) -> bool:
        return goal in imports[start] or any(reaches(between, goal) for between in imports[start])

    return [
        (room, goal)
        for room in imports
        for goal in sorted(imports[room])
        if not any(reaches(between, goal) for between in imports[room] - {goal})
    ]


def rows_and_edges(layers: list[list[Room]]) -> tuple[list[list[Node]], list[Edge], dict[Edge, bool]]:
    """The nodes of every row, the edges between neighbouring rows, and of each edge whether it ends at a room.

    Rooms of one layer that import each other get a row each.
    """
    arrows = direct_arrows(layers)
    names: list[list[str]] = []
    for layer in layers:
        members = [room.name for room in layer]
        inner = {goal for start, goal in arrows if start in members and goal in members}
        names += [row for row in ([m for m in members if m not in inner], [m for m in members if m in inner]) if row]
    place = {name: depth for depth, row in enumerate(names) for name in row}
    rows: list[list[Node]] = [[(name, depth) for name in row] for depth, row in enumerate(names)]
    edges: list[Edge] = []
    ends: dict[Edge, bool] = {}
    for start, goal in arrows:
        node: Node = (start, place[start])
        for depth in range(place[start] + 1, place[goal] + 1):
            following: Node = (goal, depth) if depth == place[goal] else (f"{start} to {goal}", depth)
            if depth < place[goal]:
                rows[depth].append(following)
            edges.append((node, following))
            ends[node, following] = depth == place[goal]
            node = following
    return rows, edges, ends


def passes(node: Node) -> bool:
    """Whether a node is no room, but an arrow that passes a layer."""
    return " to " in node[0]


def width_of(node: Node) -> float:
    return PASSING if passes(node) else 24 + CHARACTER * len(node[0])


def spread(row: list[Node], wanted: dict[Node, float]) -> dict[Node, float]:
    """The centres of the nodes of a row: near where they are wanted, in that order, and not on top of each other."""
    ordered = sorted(row, key=wanted.__getitem__)
    centres: list[float] = []
    for node in ordered:
        least = -1e9
        if centres:
            least = centres[-1] + (width_of(ordered[len(centres) - 1]) + width_of(node)) / 2 + GAP
        centres.append(max(wanted[node], least))
    # Pushing went to the right only: move the row back by what that was on average.
    shift = sum(centre - wanted[node] for node, centre in zip(ordered, centres, strict=True)) / len(ordered)
    return {node: centre - shift for node, centre in zip(ordered, centres, strict=True)}


def layout(rows: list[list[Node]], edges: list[Edge]) -> dict[Node, float]:
    """The centre of every node: again and again, rows are moved to the mean of what they are connected with."""
    near: dict[Node, list[Node]] = {node: [] for row in rows for node in row}
    for start, goal in edges:
        near[start].append(goal)
        near[goal].append(start)
    x: dict[Node, float] = {}
    for row in rows:
        x |= {node: 100.0 * (position - len(row) / 2) for position, node in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            x.update(spread(row, {node: sum(x[n] for n in near[node]) / max(len(near[node]), 1) for node in row}))
    return x


def picture(layers: list[list[Room]]) -> str:
    """The rooms as an SVG."""
    rows, edges, ends = rows_and_edges(layers)
    x = layout(rows, edges)
    left = min(centre - width_of(node) / 2 for node, centre in x.items()) - MARGIN
    right = max(centre + width_of(node) / 2 for node, centre in x.items()) + MARGIN
    width, height = right - left, 2 * MARGIN + (len(rows) - 1) * ROW + BOX_HEIGHT

    def top(depth: int) -> float:
        return MARGIN + depth * ROW

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#667"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    for depth in range(0, len(rows), 2):
        band = f'y="{top(depth) - (ROW - BOX_HEIGHT) / 2:.0f}" width="{width:.0f}" height="{ROW}"'
        parts.append(f'<rect {band} fill="#f6f6f8"/>')
    for start, goal in edges:
        x1, x2 = x[start] - left, x[goal] - left
        y1, y2 = top(start[1]) + BOX_HEIGHT, top(goal[1])
        tip = ' marker-end="url(#tip)"' if ends[start, goal] else ""
        curve = f"M {x1:.1f} {y1} C {x1:.1f} {y1 + ROW / 3:.1f}, {x2:.1f} {y2 - ROW / 3:.1f}, {x2:.1f} {y2}"
        through = "" if ends[start, goal] else f" L {x2:.1f} {y2 + BOX_HEIGHT}"
        parts.append(f'<path d="{curve}{through}" fill="none" stroke="#99a"{tip}/>')
    for node in (node for row in rows for node in row if not passes(node)):
        name, box = node[0], width_of(node)
        at = x[node] - left
        parts.append(
            f'<rect x="{at - box / 2:.1f}" y="{top(node[1])}" width="{box:.1f}" height="{BOX_HEIGHT}" rx="5" '
            'fill="#eef2fa" stroke="#446"/>'
            f'<text x="{at:.1f}" y="{top(node[1]) + 17}" text-anchor="middle" fill="#113">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    layers = read_rooms()
    PAGE.write_text(with_generated(PAGE.read_text(), generated(layers)))
    PICTURE.write_text(picture(layers))
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
