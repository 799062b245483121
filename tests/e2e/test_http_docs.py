"""The HTTP chapter of docs/api.md: its command lines do what it shows, and its Python program runs."""

import os
import re
import shutil
import subprocess
import unittest

from http_support import HttpCase

PAGE = "docs/api.md"
CHAPTER = "# HTTP, for OpenAI clients\n"
OPENAI_PYTHON = "build/openai/bin/python"
# What is another number in every run.
VOLATILE = [(r'"(chatcmpl|cmpl)-[0-9a-f]{8}-\d+"', r'"\1-ID"'), (r'"created":\d+', '"created":N'), (r'"seed":\d+', '"seed":N'),
            (r'"cached_tokens":\d+', '"cached_tokens":N'), (r'Date: .*', 'Date: D')]


def chapter():
    with open(PAGE, encoding="utf-8") as page:
        return page.read().partition(CHAPTER)[2]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", chapter(), re.MULTILINE | re.DOTALL)


def commands(block):
    """[(command, what it prints)] of a console block: a command goes on while its lines end in a backslash or a quote is open."""
    out = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append([line[2:], ""])
        elif out and not out[-1][1] and (out[-1][0].endswith("\\") or out[-1][0].count("'") % 2):
            out[-1][0] += "\n" + line
        else:
            out[-1][1] += line + "\n"
    return out


def steady(text):
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text.strip()


@unittest.skipUnless(shutil.which("curl"), "curl is not there: scripts/setup --with-tests installs it")
class Commands(HttpCase):
    def run_command(self, command):
        command = command.replace("127.0.0.1:8080", f"127.0.0.1:{self.server.http_port}")
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True).stdout

    def test_they_print_what_the_page_shows(self):
        found = [entry for block in blocks("console") for entry in commands(block)]
        self.assertGreater(len(found), 8)
        for command, shown in found:
            with self.subTest(command):
                self.assertEqual(steady(self.run_command(command)), steady(shown))


@unittest.skipUnless(os.path.exists(OPENAI_PYTHON),
                     "the openai package is not there: scripts/setup --with-tests installs it into build/openai")
class Programs(HttpCase):
    def test_the_python_program(self):
        [program] = blocks("python")
        [shown] = blocks("text")
        program = program.replace("127.0.0.1:8080", f"127.0.0.1:{self.server.http_port}")
        printed = subprocess.run([OPENAI_PYTHON, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(printed.stdout, shown)


if __name__ == "__main__":
    unittest.main()
