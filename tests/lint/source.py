"""Reads the files of this repository for the lints: which there are, and what in a Rust file is code."""

import fnmatch
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

RUST_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<raw>     b?r(?P<hashes>\#+)".*?"(?P=hashes) | b?r"[^"]*" )
  | (?P<string>  [bc]?"(?:\\.|[^"\\])*" )
  | (?P<char>    b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'\n])' )
    """,
    re.S | re.X,
)


def files(paths):
    """The tracked and new files below `paths` (below the whole repository if empty), relative to the root."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"]
    relative = [os.path.relpath(os.path.abspath(path), ROOT) for path in paths]
    names = subprocess.run(command + relative, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(names.split("\0")) if name and os.path.isfile(os.path.join(ROOT, name)))


def read(name):
    """The text of a file, or None if it isn't text."""
    try:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        return None


def matches(name, patterns):
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def blank(text):
    """`text` with everything but line ends replaced by spaces."""
    return re.sub(r"[^\n]", " ", text)


def code_only(text):
    """A Rust file without comments, and with the content of strings blanked; offsets and lines stay."""

    def replace(match):
        if match.lastgroup == "comment" or match["comment"]:
            return blank(match[0])
        return re.sub(r"[^\n]", "_", match[0])

    return RUST_TOKEN.sub(replace, text)


def comments(text):
    """The comments of a Rust file as (line, text, has its own line)."""
    for match in RUST_TOKEN.finditer(text):
        if match["comment"]:
            start = text.rfind("\n", 0, match.start()) + 1
            yield text.count("\n", 0, start) + 1, match[0], not text[start : match.start()].strip()


TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*")
TEST_FILE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")


def without_tests(text):
    """A Rust file's code without comments and without `#[cfg(test)]` items, and the names of its test modules."""
    code, modules = code_only(text), []
    while match := TEST_ITEM.search(code):
        if module := TEST_FILE.match(code, match.end()):
            modules.append(module[1])
            end = module.end()
        else:
            end = item_end(code, match.end())
        code = code[: match.start()] + blank(code[match.start() : end]) + code[end:]
    return code, modules


def item_end(code, start):
    """Where the item that begins at `start` ends: after its first block in braces, or after its `;`."""
    depth = 0
    for place in range(start, len(code)):
        sign = code[place]
        if sign in "{([":
            depth += 1
        elif sign in "})]":
            depth -= 1
            if depth == 0 and sign == "}":
                return place + 1
        elif sign in ";," and depth == 0:
            return place + 1
    return len(code)
