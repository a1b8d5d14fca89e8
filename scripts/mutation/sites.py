# SPDX-License-Identifier: BSD-2-Clause
"""What can be broken in a C++ source, and how: find_sites(). switch_on() makes a source that has both,
what was there and the mutation, and takes the one or the other when it runs.

There is no parser here. The sources are formatted by clang-format, so patterns of characters tell a
comparison from a template argument. What does not compile is drawn again by the caller.
"""

import re
from typing import NamedTuple

# Calls that are blanked out with their arguments: they check or report, and change nothing.
QUIET = re.compile(
    r"\b(?:HEDDLE_(?:DEBUG_)?ASSERT|SOFTHCA_(?:DEBUG_)?ASSERT|SOFTHCA_LOGF(?:_ONCE)?|SOFTHCA_LOG"
    r"|static_assert|assert|FI_WARN|FI_INFO|FI_DBG|log|log_line|log_text|log_path|warn_of|report_once"
    r"|fprintf|printf|perror)\s*\("
)
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "&&": "||", "||": "&&", "+": "-", "-": "+", "++": "--", "--": "++", "+=": "-=", "-=": "+=",
    "true": "false", "false": "true",
}  # fmt: skip
# Kind of mutation: what it looks like. Group 1 is swapped.
SWAPPED = {
    "comparison": r"(?<=[\w)\]]) (<=|>=|==|!=|<|>)(?=\s+[\w(!*&~-])",
    "and-or": r" (&&|\|\|)(?=\s)",
    "one-off": r" ([+-]) 1\b(?![.'])",
    "counter": r"(\+\+|--)(?=[\w(*])|(?<=[\w)\]])(?:\+\+|--)",
    "sum": r" (\+=|-=)(?=\s)",
    "flag": r"\b(true|false)\b",
}
KEYWORDS = (
    "using", "goto", "throw", "static", "const", "constexpr", "auto", "typedef", "friend", "template",
    "break", "continue", "case", "default", "delete", "new", "else", "co_await", "co_return", "co_yield", "operator",
)  # fmt: skip
EXPRESSION = re.compile(
    r"(?:(?:\+\+|--|\*+)?(?P<word>[A-Za-z_][\w:]*)"
    r"(?:\s*[.\[(]|\s*->|\s*(?:[-+|&^*/%]|<<|>>)?=(?!=)|\s*(?:\+\+|--)|;))"
)
BODY = re.compile(r"(?:\)[\w\s&\[\]:<>*,-]*|\b(?:else|do|try)|\]|:)\s*$")
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")


class Site(NamedTuple):
    kind: str
    begin: int
    end: int
    text: str  # put in the place of begin..end


def blank(text):
    """The text without comments, literals, preprocessor lines, conditional code, and QUIET calls: each
    character of these is a space, so that offsets and lines stay."""
    out = list(text)

    def erase(begin, end):
        for i in range(begin, end):
            if out[i] != "\n":
                out[i] = " "

    literal = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
        re.S,
    )
    for found in literal.finditer(text):
        erase(*found.span())
    # Lines of the preprocessor, with their continuations, and all that stands between #if and #endif.
    depth, offset, continued = 0, 0, False
    for line in text.splitlines(keepends=True):
        directive = re.match(r"\s*#\s*(\w+)", "".join(out[offset : offset + len(line)]))
        if directive and directive[1] in ("if", "ifdef", "ifndef"):
            depth += 1
        if directive or depth or continued:
            erase(offset, offset + len(line))
        if directive and directive[1] == "endif":
            depth -= 1
        continued = (bool(directive) or continued) and line.rstrip().endswith("\\")
        offset += len(line)
    code = "".join(out)
    for found in QUIET.finditer(code):
        erase(found.start(), closing(code, found.end() - 1) + 1)
    return "".join(out)


def closing(code, at):
    """The offset of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    return len(code) - 1


def statements(code):
    """Yields (begin, end, head of the block around) of each statement in a function, `end` behind its
    semicolon; and, as ("body", begin, end), each outermost body."""
    stack = []  # of the blocks around: is it in a function, its head, the depth of parentheses
    begin, depth = 0, 0
    for i, c in enumerate(code):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c == "{":
            head = code[begin:i]
            inside = bool(stack) and stack[-1][0]
            if BODY.search(head):
                within = True
            elif SCOPE.search(head):
                within = False
            else:
                within = inside
            stack.append((within, head, depth, i, within and not inside))
            begin, depth = i + 1, 0
        elif c == "}" and stack:
            within, head, depth, opened, outermost = stack.pop()
            if outermost:
                yield "body", opened, i
            begin = i + 1
        elif c == ";" and depth == 0:
            if stack and stack[-1][0]:
                yield begin, i + 1, stack[-1][1]
            begin = i + 1


def without_control(code, begin, end):
    """Where the statement begins behind `case x:`, `if (...)`, `else` and the like; and whether an `if`
    stood there."""
    conditional = False
    while True:
        space = re.compile(r"\s*(?:(?:case\b[^?;]*?|default|\w+)(?<!:):(?!:)|else\b|do\b|\[\[\w+\]\])?\s*").match(
            code, begin, end)
        begin = max(begin, space.end())
        control = re.compile(r"(if|for|while|switch)\s*(?:constexpr\s*)?\(").match(code, begin, end)
        if control:
            conditional = conditional or control[1] == "if"
            begin = closing(code, control.end() - 1) + 1
        elif space.end() == space.start():
            return begin, conditional


def regions(code):
    """Yields (form, begin, end) of each piece of code of which there can be two, the inner ones later:
    a condition, a statement, or the value of a variable."""
    for begin, end, _ in statements(code):
        if begin == "body":
            continue
        start, _ = without_control(code, begin, end)
        word = EXPRESSION.match(code, start, end)
        if code.startswith("return", start) or (word and word["word"] not in KEYWORDS):
            yield "statement", start, end
            continue
        value = re.compile(r"[\w:<>*&, ]+ \w+ = (?!\s*\{)").match(code, start, end)
        if value and not code.startswith(("constexpr", "static", "using"), start):
            yield "value", value.end(), end - 1
    for match in re.finditer(r"\b(?:if|while|for) \(", code):
        begin, end = match.end(), closing(code, match.end() - 1)
        if match[0].startswith("for"):
            parts = code[begin:end].split(";")
            if len(parts) != 3:
                continue
            begin += len(parts[0]) + 1
            end = begin + len(parts[1])
        condition = code[begin:end]
        if condition.strip() and ";" not in condition and not re.search(r"[^=!<>]=[^=]", condition):
            yield "condition", begin, end


def switch_on(text, site, number, found):
    """(begin, end, replacement) with which mutation `number` is made if it is selected, else None.
    `found`: all regions of the text."""
    around = [each for each in found if each[1] <= site.begin and site.end <= each[2]]
    if not around:
        return None
    form, begin, end = min(around, key=lambda each: each[2] - each[1])
    before = text[begin:end]
    after = text[begin : site.begin] + site.text + text[site.end : end]
    on = f"::heddle_mutation::on({number})"
    # The second side has the lines of the first again.
    if "\n" in before:
        before = f"\n#line {text.count(chr(10), 0, begin) + 1}\n{before}"
    if form == "condition":
        return begin, end, f"{on} ? static_cast<bool>({after}) : static_cast<bool>({before})"
    if form == "value":
        return begin, end, f"{on} ? ({after}) : ({before})"
    return begin, end, f"do {{ if ({on}) {{ {after} }} else {{ {before} }} }} while (0);"


def find_sites(text):
    code = blank(text)
    found = []
    bodies = []
    for begin, end, head in statements(code):
        if begin == "body":
            bodies.append((end, head))
            continue
        start, conditional = without_control(code, begin, end)
        if code.startswith("return", start):
            if conditional or re.match(r"\s*(?:\}?\s*else\s*)?if\b", head):
                found.append(Site("early return", start, end, ";"))
            continue
        word = EXPRESSION.match(code, start, end)
        if word and word["word"] not in KEYWORDS:
            found.append(Site("statement", start, end, ";"))
    for kind, pattern in SWAPPED.items():
        for match in re.finditer(pattern, code):
            begin, end = match.span(1) if match[1] else match.span()
            found.append(Site(kind, begin, end, SWAPS[text[begin:end]]))
    for match in re.finditer(r"(?<![\w)\]])!(?=[\w(])", code):
        found.append(Site("negation", match.start(), match.end(), ""))
    for match in re.finditer(r"\b(?:if|while) \(", code):
        begin, end = match.end(), closing(code, match.end() - 1)
        condition = text[begin:end]
        if ";" not in condition and not re.search(r"[^=!<>]=[^=]", condition):
            found.append(Site("condition", begin, end, f"!({condition})"))
    return [
        site for site in sorted(set(found), key=lambda site: site[1:])
        if any(begin < site.begin and site.end <= end for begin, end in bodies)
    ]  # fmt: skip
