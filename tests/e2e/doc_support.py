"""The examples of a page of docs/: found in its fences, run, and compared with the output that the page shows.

A ```console block has command lines behind "$ " and below each what it prints. The ```python blocks of a chapter are
one program; a ```text block behind one of them is what that block prints.
"""

import re

# What ends the output of a block of the program.
BLOCK_ENDS = "<<the end of a block>>"
FLOAT = re.compile(r"-?\d+\.\d+")
# Two instruction-set levels may differ in the last digit shown of a log probability.
FLOAT_TOLERANCE = 0.05


def chapter(path, after=None, before=None):
    """The page's text between two of its lines; None: from its beginning, to its end."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if after is not None:
        _, found, text = text.partition(f"\n{after}\n")
        assert found, f"{path} has no line '{after}'"
    if before is not None:
        text, found, _ = text.partition(f"\n{before}\n")
        assert found, f"{path} has no line '{before}'"
    return text


def fences(text):
    """[(language, body)] in the page's order"""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(text, language):
    return [body for its, body in fences(text) if its == language]


def commands(block):
    """[(command, what it prints)] of a console block: a command goes on while its lines end in a backslash or a quote is
    open."""
    out = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append([line[2:], ""])
        elif out and not out[-1][1] and (out[-1][0].endswith("\\") or out[-1][0].count("'") % 2):
            out[-1][0] += "\n" + line
        else:
            out[-1][1] += line + "\n"
    return out


def program(text):
    """-> the Python blocks as one program that prints BLOCK_ENDS after each of them; [what each one shows]"""
    source, shown, last = [], [], None
    for language, body in fences(text):
        if language == "python":
            source.append(f'{body}\nprint("{BLOCK_ENDS}", flush=True)\n')
            shown.append("")
        elif language == "text" and last == "python":
            shown[-1] = body
        last = language
    return "\n".join(source), shown


def outputs(printed):
    """What each block of `program` printed."""
    parts = printed.split(BLOCK_ENDS + "\n")
    assert parts[-1] == "", f"the program ended early:\n{parts[-1]}"
    return parts[:-1]


def check_alike(case, printed, shown, volatile):
    """`volatile`: [(pattern, replacement)] for what is another number in every run. "..." at the end of a line shown
    stands for the rest of that line, on a line of its own for the lines that follow."""
    def steady(text):
        for pattern, replacement in volatile:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text.strip().splitlines()

    printed, shown = steady(printed), steady(shown)
    if shown and shown[-1] == "...":
        shown.pop()
        printed = printed[:len(shown)]
    for index, line in enumerate(shown):
        if line.endswith(" ...") and index < len(printed) and printed[index].startswith(line[:-4]):
            shown[index] = printed[index]
    case.assertEqual([FLOAT.sub("F", line) for line in printed], [FLOAT.sub("F", line) for line in shown])
    for mine, theirs in zip(FLOAT.findall("\n".join(printed)), FLOAT.findall("\n".join(shown))):
        case.assertAlmostEqual(float(mine), float(theirs), delta=FLOAT_TOLERANCE, msg="\n".join(printed))
