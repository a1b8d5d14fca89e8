# SPDX-License-Identifier: BSD-2-Clause
"""What is prose in a file, for scripts/check-prose: comments, docstrings, literals, documents."""
import os
import re

STRING_TREES = ("src", "include", "bench")


def hide(pattern, text, flags=0):
    """The text with X for each match; the lines stay."""
    return re.sub(pattern, lambda match: "X" + "\n" * match[0].count("\n"), text, flags=flags)


def plain(text):
    """A paragraph without code, quotations, addresses and emphasis."""
    text = hide(r"``[^`]+``|`[^`]+`", text)
    text = hide(r"https?://\S+", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    text = hide(r'"[^"]*"|“[^”]*”', text)
    return re.sub(r"\*\*|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", "", text)


def paragraphs(lines):
    """(line, text) of the paragraphs of (line number, text) pairs; a blank, indented or list line
    ends one, and a gap in the numbers does."""
    begin, last, parts = 0, 0, []
    for number, text in lines:
        code = re.match(r" {4,}", text) and not parts
        item = re.match(r"\s*(?:[-*+]|\d+[.)])\s+", text)
        if parts and (item or not text.strip() or code or number != last + 1):
            yield begin, "\n".join(parts)
            parts = []
        last = number
        if code or not text.strip():
            continue
        if not parts:
            begin = number
        parts.append(text[item.end():] if item else text.strip())
    if parts:
        yield begin, "\n".join(parts)


C_TOKEN = re.compile(r'''(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|R"\((?P<raw>.*?)\)"
    |(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>'(?:\\.|[^'\\\n])+')''', re.S | re.X)
SKIPPED = re.compile(r"SPDX|clang-format o|NOLINT|^!/|coding[:=]")


def c_texts(text):
    """(kind, line, text) of a C or C++ source: comments, strings, and the code without both."""
    comments, code, at = [], [], 0
    strings = []  # [line, text, place of its end]
    for match in C_TOKEN.finditer(text):
        code.append(text[at:match.start()])
        number = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start())
        if match["line"]:
            content = match[0].lstrip("/").removeprefix("!").removeprefix("<")
            own_line = not text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
            comments.append((number, column, own_line, content.removeprefix(" ")))
        elif match["block"]:
            for more, line in enumerate(match[0][2:-2].split("\n")):
                comments.append((number + more, -number, True, re.sub(r"^\s*\*? ?", "", line)))
        elif match["string"]:
            if strings and not text[strings[-1][2]:match.start()].strip():
                strings[-1][1] += match[0][1:-1]
                strings[-1][2] = match.end()
            else:
                strings.append([number, match[0][1:-1], match.end()])
        code.append(" " + "\n" * match[0].count("\n"))
        at = match.end()
    code.append(text[at:])

    run, before = [], None
    for number, column, own_line, content in [*comments, (0, 0, False, "")]:
        continues = before and number == before[0] + 1 and own_line and column == before[1]
        if number == 0 or not continues:
            for line, paragraph in paragraphs(run):
                yield "comment", line, paragraph
            run = []
        before = (number, column)
        if not SKIPPED.search(content):
            run.append((number, content))
    for number, content, _ in strings:
        content = re.sub(r"\\[nt]", " ", content).replace('\\"', '"')
        if len(re.findall(r"\b[a-z]{2,}\b", content)) >= 4 and " " in content:
            yield "string", number, content
    yield "code", 1, "".join(code)


def hash_texts(text):
    """Comments that begin with #, and docstrings, of Python, shell and CMake."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#+ ?(.*)", line) or re.search(r"\s#\s+([^'\"{}]*)$", line)
        if match and not SKIPPED.search(match[1]):
            lines.append((number, match[1]))
    for line, paragraph in paragraphs(lines):
        yield "comment", line, paragraph
    for match in re.finditer(r'^[ \t]*"""(.*?)"""', text, re.S | re.M):
        begin = text.count("\n", 0, match.start()) + 1
        shared = [(begin + more, line) for more, line in enumerate(match[1].split("\n"))]
        for line, paragraph in paragraphs(shared):
            yield "comment", line, paragraph


def markdown_texts(text):
    text = re.sub(r"<!-- prose: off -->.*?(?:<!-- prose: on -->|\Z)|<!--.*?-->|\A---\n.*?\n---\n",
                  lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    lines, fence, listed, blank = [], None, False, True
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (fence is None or mark[1].startswith(fence)):
            fence = mark[1] if fence is None else None
            continue
        if fence is not None:
            continue
        if re.match(r"\s*(?:[-*+]|\d+[.)])\s", line):
            listed = True
        elif line[:1].strip() and blank:
            listed = False
        if line.lstrip().startswith("|"):
            cells = [cell for cell in line.strip().strip("|").split("|")]
            if not re.fullmatch(r"[\s|:-]*", line):
                for cell in cells:
                    yield "document", number, cell.strip()
            blank = True
            continue
        if line.startswith("#"):
            yield "document", number, line.lstrip("# ")
            blank = True
            continue
        indented = re.match(r" {4,}", line) is not None
        if indented and blank and not listed:
            continue  # an indented code block, whose next line is one as well
        blank = not line.strip()
        lines.append((number, re.sub(r"^\s*>+ ?", "", line.strip() if indented else line)))
    for line, paragraph in paragraphs(lines):
        yield "document", line, paragraph


def manual_texts(text):
    lines, code, synopsis = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        request = re.match(r"[.'](\S*)\s*(.*)", line)
        if request:
            name, rest = request[1], request[2]
            if name == "SH":
                synopsis = rest.strip('"') == "SYNOPSIS"
            if name in ("nf", "EX"):
                code = True
            elif name in ("fi", "EE"):
                code = False
            line = re.sub(r'"', "", rest) if re.fullmatch(r"[BI]|SM|[BIR]{2}", name) else ""
        if code or synopsis:
            continue
        lines.append((number, re.sub(r"\\f[BIRP]|\\&", "", line).replace("\\-", "-")))
    for line, paragraph in paragraphs(lines):
        yield "document", line, paragraph


def texts_of(path, text):
    name = os.path.basename(path)
    if name.endswith((".cc", ".h", ".c")):
        for kind, line, content in c_texts(text):
            if kind != "string" or path.startswith(STRING_TREES):
                yield kind, line, content
    elif name.endswith(".md"):
        yield from markdown_texts(text)
    elif re.fullmatch(r".*\.[1-8]", name):
        yield from manual_texts(text)
    elif name.endswith((".py", ".cmake")) or name in ("CMakeLists.txt", "Makefile") or \
            text.startswith("#!"):
        yield from hash_texts(text)
