"""Sums what ctest ran: python3 count_tests.py FOLDER

FOLDER holds JUnit files of ctest. An entry that is a GoogleTest or unittest program counts with each of its tests, as
its own closing lines say; any other entry counts once. A program that failed without saying which test did (it
crashed, or a sanitizer spoke at its end) is one failure. The file FOLDER/broken has one line a build that failed.
Exits with 1 if anything failed or nothing passed.
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple


class Count(NamedTuple):
    passed: int
    failed: int
    skipped: int


# In the order of Count.
GOOGLETEST = {"passed": re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.MULTILINE),
              "failed": re.compile(r"^\[  FAILED  \] (\d+) tests?, listed below", re.MULTILINE),
              "skipped": re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.MULTILINE)}
UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n+(OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
# The reason of a skipped test: GoogleTest prints it below "file:line: Skipped", unittest after "skipped".
REASON = re.compile(r"^\S+:\d+: Skipped\n(.+)$|\.\.\. skipped '(.+)'$", re.MULTILINE)


def last(items):
    return next(iter(list(items)[-1:]), None)


def count_output(text: str):
    """What a test program says about itself at its end; None where it says nothing."""
    if GOOGLETEST["passed"].search(text):
        found = [pattern.findall(text) for pattern in GOOGLETEST.values()]  # the last: a test may print such lines too
        return Count(*(int(numbers[-1]) if numbers else 0 for numbers in found))
    if summary := last(UNITTEST.finditer(text)):
        details = dict(re.findall(r"(\w+)=(\d+)", summary[3] or ""))
        failed = sum(int(details.get(name, 0)) for name in ("failures", "errors"))
        skipped = int(details.get("skipped", 0))
        return Count(int(summary[1]) - failed - skipped, failed, skipped)
    return None


def count_entry(case) -> Count:
    """One <testcase> of ctest."""
    status = case.get("status")  # run, fail, notrun (skipped by its own word, or its program is missing), disabled
    text = case.findtext("system-out") or ""
    if status == "run":
        return count_output(text) or Count(1, 0, 0)
    if status == "fail":
        inside = count_output(text) or Count(0, 0, 0)
        return inside._replace(failed=max(inside.failed, 1))
    asked_for = case.find("skipped") is not None and "SKIP_" in (case.find("skipped").get("message") or "")
    return Count(0, 0, 1) if asked_for or status == "disabled" else Count(0, 1, 0)


def reasons_of(case) -> list:
    """Why tests of this entry were skipped."""
    text = case.findtext("system-out") or ""
    if case.get("status") == "notrun":
        return [text.strip() or "not run"]
    return [ours or theirs for ours, theirs in REASON.findall(text)]


def main(folder: pathlib.Path) -> int:
    total, failures, reasons = Count(0, 0, 0), [], collections.Counter()
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            count = count_entry(case)
            total = Count(*map(sum, zip(total, count)))
            if count.failed:
                failures.append(f"failed: {path.stem}: {case.get('name')}")
            if count.skipped:
                reasons.update(f"skipped: {case.get('name')}: {reason}" for reason in reasons_of(case))
    broken = folder / "broken"
    for name in broken.read_text().split() if broken.exists() else []:
        failures.append(f"failed: {name}: the build")
        total = total._replace(failed=total.failed + 1)
    for line, times in sorted(reasons.items()):
        print(line if times == 1 else f"{line} (x {times})")
    print("\n".join(failures), end="\n" if failures else "")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
