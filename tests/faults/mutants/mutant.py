"""A scheduler that breaks one promise: the code of a function, and what takes its place in a copy of the module.

Code is compared as a syntax tree, and a function is found by its name wherever it is: layout, comments, and the module in which a
function stands may change without a mutant.
"""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "operator" / "allaboard"


@dataclass(frozen=True, slots=True)
class Edit:
    """``before``, which stands once in ``place``, becomes ``after``: an expression another one, or statements others, or none.

    ``place`` is a function or a class by its qualified name, such as ``GangQueue.pause``, or what a module assigns to a name. Where several
    modules have the name, the module's goes before it: ``queue:_taken``.
    """

    place: str
    before: str
    after: str


PAUSES = Edit("DryRun", 'DryRun = Literal["role", "all", "none"]', 'import asyncio\nDryRun = Literal["role", "all", "none"]')
"""For a transaction that waits where it shouldn't."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``directed`` names the schedule in ``directed`` that convicts it, and ``rule`` the rule by which, whatever others it breaks."""

    name: str
    directed: str
    rule: str
    edits: tuple[Edit, ...]


def patched(mutant: Mutant) -> dict[str, str]:
    """Return the modules that a mutant changes, by their paths below the package. Raises ``ValueError`` when it doesn't fit the code."""
    trees: dict[Path, ast.Module] = {}
    for edit in mutant.edits:
        path = _module_of(mutant, edit)
        tree = trees.setdefault(path, ast.parse(path.read_text(encoding="utf-8")))
        number = _replace(tree, edit)
        if number != 1:
            raise ValueError(f"{mutant.name}: {edit.before.strip()!r} stands {number} times in {edit.place}")
    return {str(path.relative_to(PACKAGE)): ast.unparse(ast.fix_missing_locations(tree)) + "\n" for path, tree in trees.items()}


def plant(mutant: Mutant, folder: Path) -> None:
    """Write the modules that the mutant changes below ``folder``. Raises ``ValueError`` when it doesn't fit the code any more."""
    for module, text in patched(mutant).items():
        path = folder / "allaboard" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def statements(code: str) -> list[ast.stmt]:
    """Return the statements of ``code``, which may be indented."""
    return ast.parse(textwrap.dedent(code)).body


def expression(code: str) -> ast.expr | None:
    """Return the expression that ``code`` is, ``None`` if it is none."""
    body = statements(code)
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None


@cache
def _places() -> dict[str, list[Path]]:
    """The modules in which there is a place of a name."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, _ in _named(tree):
            found.setdefault(name, []).append(path)
    return found


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield f"{node.name}.{child.name}", child


def _key(node: ast.AST) -> str:
    return ast.dump(node)


def _module_of(mutant: Mutant, edit: Edit) -> Path:
    module, _, name = edit.place.rpartition(":")
    paths = [path for path in _places().get(name, ()) if module in ("", path.stem)]
    if len(paths) != 1:
        raise ValueError(f"{mutant.name}: there are {len(paths)} places {edit.place} in the package")
    return paths[0]


def _replace(tree: ast.Module, edit: Edit) -> int:
    """Replace what the edit says in its place; returns how often it stood there."""
    scope = dict(_named(tree))[edit.place.rpartition(":")[2]]
    before, after = expression(edit.before), expression(edit.after) if edit.after.strip() else None
    if before is not None and after is not None:
        return _replace_expressions(scope, _key(before), after)
    whole = tree if isinstance(scope, ast.Assign | ast.AnnAssign) else scope  # an assignment may itself be replaced
    return _replace_statements(whole, [_key(each) for each in statements(edit.before)], statements(edit.after))


def _replace_expressions(scope: ast.AST, before: str, after: ast.expr) -> int:
    number = 0
    for node in ast.walk(scope):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and _key(value) == before:
                setattr(node, field, after)
                number += 1
            elif isinstance(value, list):
                for index, each in enumerate(value):
                    if isinstance(each, ast.expr) and _key(each) == before:
                        value[index] = after
                        number += 1
    return number


def _replace_statements(scope: ast.AST, before: Sequence[str], after: Sequence[ast.stmt]) -> int:
    number = 0
    for node in ast.walk(scope):
        for _, value in ast.iter_fields(node):
            if not (isinstance(value, list) and value and isinstance(value[0], ast.stmt)):
                continue
            for start in range(len(value) - len(before), -1, -1):
                if [_key(each) for each in value[start : start + len(before)]] == list(before):
                    value[start : start + len(before)] = after
                    number += 1
            if not value:
                value.append(ast.Pass())
    return number
