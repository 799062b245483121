"""The SVG files of client/plot.h, read by an XML parser: well-formed whatever the words are, nothing outside its frame
whatever the values are, and no larger for a million points."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
STEP = re.compile(r"([MLHVhvmlaz])|(-?\d+(?:\.\d+)?)")


def ends(path):
    """The absolute places of a path: where it moves to and where its straight lines end; shapes around a place begin
    with a small letter, and are left out but for their place."""
    command, numbers, out = "", [], []
    for letter, number in STEP.findall(path):
        if letter:
            command, numbers = letter, []
        elif command in "MLHV":
            numbers.append(float(number))
            if command == "H":
                out.append((numbers[0], out[-1][1]))
            elif command == "V":
                out.append((out[-1][0], numbers[0]))
            elif len(numbers) == 2:
                out.append(tuple(numbers))
                numbers = []
    return out


class Samples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([os.environ["PLOT_SAMPLES"], cls.folder.name], check=True, timeout=120)
        cls.files = {path.stem: path.read_bytes() for path in pathlib.Path(cls.folder.name).glob("*.svg")}
        cls.pages = {name: xml.fromstring(text) for name, text in cls.files.items()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def paths(self, page, kind):
        """Lists of places of the paths of a class."""
        return [ends(path.get("d")) for path in self.pages[page].iter(SVG + "path") if kind in path.get("class").split()]

    def texts(self, page):
        return [text.text for text in self.pages[page].iter(SVG + "text")]

    def test_nothing_outside_its_frame(self):
        for name, page in self.pages.items():
            _, _, width, height = map(float, page.get("viewBox").split())
            frame = None
            waiting = []  # grids, marks and series come before their frame
            for path in page.iter(SVG + "path"):
                places = ends(path.get("d"))
                for x, y in places:
                    self.assertTrue(0 <= x <= width and 0 <= y <= height, (name, x, y))
                if path.get("class") != "f":
                    waiting += places
                    continue
                (left, top), (_, bottom), (right, _) = places
                above = (frame or (0, 0, 0, 0))[3]  # of this frame is the legend, in between
                frame = (left, top, right, bottom)
                for x, y in waiting:
                    self.assertTrue(left <= x <= right and (above < y < top or top <= y <= bottom), (name, x, y, frame))
                waiting = []
            for text in page.iter(SVG + "text"):
                self.assertTrue(0 <= float(text.get("x")) <= width and 0 < float(text.get("y")) < height, name)

    def test_no_word_of_a_value_that_is_none(self):
        for name, text in self.files.items():
            for word in (b"nan", b"inf", b"1e308"):
                self.assertNotIn(word, re.sub(rb"<text.*?</text>|<title>.*?</title>|<style>.*?</style>", b"", text,
                                              flags=re.DOTALL).lower(), name)

    def test_size_is_bounded(self):
        for name in ("line_of_many", "points_of_many", "broken"):
            self.assertLess(len(self.files[name]), 64 << 10, name)

    def test_no_peak_is_lost(self):
        for name, kind in (("line_of_many", "l"), ("points_of_many", "p")):
            places = max(self.paths(name, kind), key=len)
            top = min(y for _, y in places)
            self.assertEqual(len({x for x, y in places if y == top}), 3, name)

    def test_many_breaks_are_dots(self):
        [(_, line)] = [(len(p), p) for p in self.paths("broken", "l") if len(p) > 1]
        self.assertGreater(len({y for _, y in line}), 6)

    def test_words_are_escaped_and_nothing_runs(self):
        for tag in ("script", "foreignObject", "image", "use", "a"):
            self.assertEqual(list(self.pages["words"].iter(SVG + tag)), [])
        self.assertTrue(any("<script>alert('1')</script> & \"quoted\"" in text for text in self.texts("words")))
        self.assertTrue(any(text.endswith("…") for text in self.texts("words")))

    def test_self_contained(self):
        for name, text in self.files.items():
            addresses = re.findall(rb"\w+://[^\"' ]+|url\(|@import|href", text)
            self.assertEqual(addresses, [b"http://www.w3.org/2000/svg"], name)
            self.assertIn(b"prefers-color-scheme:dark", text)

    def test_what_is_shown(self):
        words = self.texts("ordinary")
        for text in ("A load test", "folio-client bench --rate 20 --duration 60 --plot FILE.svg", "Latency against time",
                     "requests", "p50 & p99 <moving>", "time, s", "time to first token, ms", "rate 20/s", "Ctrl-C",
                     "series number 19", "10k", "500"):
            self.assertIn(text, words)
        dots = [path for path in self.paths("ordinary", "p") if len(path) == 300]
        self.assertEqual(len(dots), 1)
        self.assertEqual(len([mark for mark in self.paths("ordinary", "k")]), 2)

    def test_lines_that_share_a_colour_differ(self):
        looks = [(path.get("class"), path.get("stroke-dasharray")) for path in self.pages["ordinary"].iter(SVG + "path")
                 if path.get("class").startswith("l ") and len(ends(path.get("d"))) == 9]
        self.assertEqual(len(looks), 20)
        self.assertEqual(len(set(looks)), 20)

    def test_without_a_value(self):
        self.assertEqual(self.texts("hostile").count("no data"), 4)
        self.assertEqual(self.texts("empty"), [])


if __name__ == "__main__":
    unittest.main()
