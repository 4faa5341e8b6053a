"""Defines mutants: the code of a function, and its replacement in a copy of the module.

Code is compared as a syntax tree, and a function is found by its name in any module. So layout, comments and the place of a function may
change without a change of the mutant.
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
    """Replace ``before``, which occurs once in ``place``, by ``after``: an expression by another, or statements by others or none.

    ``place`` is the qualified name of a function or a class, such as ``GangQueue.pop``, or the name of a module's assignment. If several
    modules have the name, the module's name precedes it: ``retry:_seconds``.
    """

    place: str
    before: str
    after: str


PAUSES = Edit("DryRun", 'DryRun = Literal["role", "all", "none"]', 'import asyncio\nDryRun = Literal["role", "all", "none"]')
"""Imports asyncio into the module of transactions, for mutants that pause a transaction."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant: ``directed`` names the schedule that convicts it, and ``rule`` is the rule by which it must, besides others."""

    name: str
    directed: str
    rule: str
    edits: tuple[Edit, ...]


def patched(mutant: Mutant) -> dict[str, str]:
    """Return the modules that a mutant changes, by their paths below the package. Raises ``ValueError`` if it doesn't fit the code."""
    trees: dict[Path, ast.Module] = {}
    for edit in mutant.edits:
        path = _module_of(mutant, edit)
        tree = trees.setdefault(path, ast.parse(path.read_text(encoding="utf-8")))
        number = _replace(tree, edit)
        if number != 1:
            raise ValueError(f"{mutant.name}: {edit.before.strip()!r} occurs {number} times in {edit.place}")
    return {str(path.relative_to(PACKAGE)): ast.unparse(ast.fix_missing_locations(tree)) + "\n" for path, tree in trees.items()}


def plant(mutant: Mutant, folder: Path) -> None:
    """Write the modules that the mutant changes below ``folder``. Raises ``ValueError`` if it doesn't fit the code."""
    for module, text in patched(mutant).items():
        path = folder / "allaboard" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def statements(code: str) -> list[ast.stmt]:
    """Return the statements of ``code``, which may be indented."""
    return ast.parse(textwrap.dedent(code)).body


def expression(code: str) -> ast.expr | None:
    """Return the expression in ``code``; None if it isn't one."""
    body = statements(code)
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None


@cache
def _places() -> dict[str, list[Path]]:
    """Return the modules that define each name."""
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
    """Apply the edit to ``tree``; return how often its code occurred."""
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
