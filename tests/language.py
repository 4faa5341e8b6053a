"""Check the language of the project: openings, words and long sentences that readers stumble over.

``python -m tests.language [PATH ...]`` prints each finding as ``file:line: message``. `tests/unit/test_language.py` requires that
there are none. The rules hold for docstrings, comments, messages, names and documents alike; each forbidden word has its replacement.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

SUFFIXES = (".py", ".md", ".yaml", ".yml", ".sh", ".toml", ".cfg", ".tpl", "NOTES.txt", ".go")
"""Ends of the names of files that are checked, beside Makefile, Dockerfile and the programs of ``.ci``."""

MOST_WORDS = 30
"""Most words of a sentence."""

OPENINGS = ("who", "whom", "whose", "whoever", "whomever", "what", "whatever", "whether", "which", "of", "how", "nobody", "somebody")
"""First words of a docstring that make a noun clause where a sentence or a noun phrase is needed."""

WORDS = {
    "whoever|whomever": "a user that, a gang that",
    "whom": "the noun again",
    "nobody|no-one": "no pod, no user",
    "somebody|someone": "a user, a pod",
    "everybody|everyone": "all users, all pods",
    "anybody|anyone": "any user, any pod",
    "tell|tells|told|telling|retell|retold": "report, say, inform",
    "anew": "again",
    "by now|by then": "the state that is meant",
    "any more|anymore": "no longer",
    "of late": "recently",
    "seat|seats|seated|seating|unseated|sits|sitting": "assignment, slot, assigned node",
    "room|rooms": "capacity; package",
    "half gangs?|half[- ]bound|half[- ]open|half[- ]placed": "partially bound",
    "rehears(e|es|ed|al|als|ing)": "dry run",
    "docket|lobby|parked|hearsay|overh(ear|eard|ears)|lull|quarantines?|strategists?|surroundings": "the glossary's word",
    "ma(ke|kes|de|king) way": "are released",
    "pass(es|ed|ing)? over": "defer, deferred",
    "mends?|mended|mending": "fix",
    "thereof|whereof|wherein|hereof|thereby": "the noun again",
}
"""Forbidden words (regular expressions, whole words), and what to say instead."""

_WORDS = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): instead for word, instead in WORDS.items()}
_ANY_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
_NAME_PARTS = re.compile(
    r"who(m|ever)?|(no|some|every|any)body|told|tells?|teller|retell|seat(s|ed|ing)?|sits|rooms?|rehears(e|ed|al|ing)|docket|lobby|parked|hearsay|"
    r"(over|un)hear|lull|quarantine|strategists|surroundings|anew|rung"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A place whose language is to be changed."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prose, and where it stands."""

    path: str
    line: int
    text: str
    is_docstring: bool = False
    is_counted: bool = True
    """True if the words of each sentence are counted. Messages are exempt: the program joins a message from several strings."""


def findings(paths: list[str]) -> Iterator[Finding]:
    """Yield what breaks a rule in the files of ``paths``, relative to the root of the repository."""
    for path in paths:
        source = (ROOT / path).read_text(encoding="utf-8")
        texts: Iterator[Text]
        if path.endswith(".py"):
            nodes = list(ast.walk(ast.parse(source)))
            yield from _names(path, nodes)
            texts = _of_python(path, source, nodes)
        elif path.endswith(".md"):
            texts = _of_markdown(path, source)
        else:
            texts = _of_comments(path, source)
        for text in texts:
            yield from _in_text(text)


def files(under: list[str]) -> list[str]:
    """Return the files of the repository that people read, below the paths ``under`` (all of them, if it is empty)."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *under]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for path in listed if _is_prose(path) and (ROOT / path).is_file()]


def _is_prose(path: str) -> bool:
    if path in ("tests/language.py", "tests/unit/test_language.py"):
        return False
    name = path.rpartition("/")[2]
    return path.startswith(".ci/") or name in ("Makefile", "Dockerfile") or name.endswith(SUFFIXES)


def _in_text(text: Text) -> Iterator[Finding]:
    prose = re.sub(r"``[^`]*``|`[^`]*`", "CODE", text.text)
    prose = re.sub(r"CODE(?:,? (?:and |or )?CODE)+", "CODE", prose)  # a list of names reads as one
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    first = re.match(r"\W*(\w+)", prose)
    if text.is_docstring and first and first[1].lower() in OPENINGS:
        yield Finding(text.path, text.line, f"opens with {first[1]!r}: say what it does, returns or is")
    for pattern, instead in _WORDS.items() if _ANY_WORD.search(prose) else ():
        for found in pattern.finditer(prose):
            line = text.line + prose.count("\n", 0, found.start())
            yield Finding(text.path, line, f"{found[0]!r}: say {instead}")
    if text.is_counted:
        for sentence in sentences(prose):
            if (count := len(words(sentence))) > MOST_WORDS:
                yield Finding(
                    text.path, text.line, f"{count} words in a sentence, at most {MOST_WORDS}: {' '.join(sentence.split())[:60]!r}"
                )


def sentences(prose: str) -> list[str]:
    """Return the sentences of ``prose``. A blank line, an item of a list, a row and a cell of a table end a sentence as well."""
    prose = re.sub(r"\b(e\.g|i\.e|etc|vs|cf)\.", r"\1", prose)
    blocks = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\n\s*\|?[-:| ]+\|\s*\n|\||::?\n|\n\s*(?=\w+: )", prose)
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])[)\"'*_]*\s+", block) if sentence.strip()]


def words(sentence: str) -> list[str]:
    """Return the words of ``sentence``."""
    return re.findall(r"[^\W_][\w'’./-]*", sentence)


def _of_python(path: str, source: str, nodes: list[ast.AST]) -> Iterator[Text]:
    documented: set[int] = set()
    for node in nodes:
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                    documented.add(id(constant))
                    yield Text(path, constant.lineno, text, is_docstring=True)
    for node in nodes:
        match node:
            case ast.JoinedStr(values=parts):
                documented.update(map(id, parts))
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            case ast.Constant(value=str(text)) if id(node) not in documented:
                pass
            case _:
                continue
        if len(text.split()) >= 4 and not _is_data(path):
            yield Text(path, node.lineno, text, is_counted=False)
    yield from _of_comments(path, source)


def _is_data(path: str) -> bool:
    """Return whether the strings of the file are code and manifests rather than messages."""
    return path.startswith(("tests/", "benchmarks/"))


_HASH_COMMENT = r"(?:^|\s)#+(?!!)\s+(.*)$"
_COMMENTS = {
    "go": r"//\s+(.*)$",
    "tpl": r"/\*(.*)\*/",
    "txt": r"(.*)",
    "yaml": rf"{_HASH_COMMENT}|^\s*(?:description|summary):\s*(.*)$",
}
"""Comments and other text that users read, in files of other languages than Python, as regular expressions by suffix."""


def _of_comments(path: str, source: str) -> Iterator[Text]:
    """Yield each run of comment lines as one text."""
    start, lines = 0, list[str]()
    is_counted = not path.endswith(".go")  # whose comments have tables of usage
    for number, comment in _comments(path, source):
        if lines and number != start + len(lines):
            yield Text(path, start, "\n".join(lines), is_counted=is_counted)
            lines = []
        start = start if lines else number
        lines.append(comment)
    if lines:
        yield Text(path, start, "\n".join(lines), is_counted=is_counted)


def _comments(path: str, source: str) -> Iterator[tuple[int, str]]:
    if path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|!|pragma)", token.string):
                yield token.start[0], token.string.lstrip("#").strip()
    else:
        comment = _COMMENTS.get(path.rpartition(".")[2], _HASH_COMMENT)
        for number, line in enumerate(source.splitlines(), 1):
            if found := re.search(comment, line):
                yield number, next(group for group in found.groups() if group is not None)


def _of_markdown(path: str, source: str) -> Iterator[Text]:
    """Yield each paragraph outside blocks of code."""
    start, lines, in_code = 1, list[str](), False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
            line = ""
        if not in_code and line.strip():
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield Text(path, start, "\n".join(lines))
            lines = []
    if lines:
        yield Text(path, start, "\n".join(lines))


def _names(path: str, nodes: list[ast.AST]) -> Iterator[Finding]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        if name.startswith("test_") and name.split("_")[1] in OPENINGS:
            yield Finding(path, node.lineno, f"the test's name {name!r} opens with {name.split('_')[1]!r}")
        for part in sorted(filter(_NAME_PARTS.fullmatch, parts)):
            yield Finding(path, node.lineno, f"the name {name!r} has {part!r} in it")


def main(under: list[str]) -> int:
    """Print the findings below the paths ``under``; return the exit status."""
    if missing := [path for path in under if not (ROOT / path).exists()]:
        print(f"no such file: {', '.join(missing)}", file=sys.stderr)  # noqa: T201
        return 2
    found = sorted(findings(files(under)), key=lambda finding: (finding.path, finding.line))
    for finding in found:
        print(finding)  # noqa: T201
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
