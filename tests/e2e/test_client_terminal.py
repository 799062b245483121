"""folio-client on a terminal: the conversation, the live view, and what the shell completes."""

import json
import os
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from support import SMOLLM2, ServerCase, chat
from terminal import BACKSPACE, CTRL_C, CTRL_D, ENTER, UP, Terminal

CLIENT = os.environ["FOLIO_CLIENT"]
PROMPT = "> "


class TerminalCase(ServerCase):
    MODEL = SMOLLM2
    FLAGS = ("--kv-blocks", "600", "--check-invariants")

    def setUp(self):
        self.state = tempfile.TemporaryDirectory()
        self.addCleanup(self.state.cleanup)
        self.history = os.path.join(self.state.name, "folio", "chat_history")

    def open(self, *arguments, port=None, **options):
        terminal = Terminal(CLIENT, arguments[0], "--address", f"127.0.0.1:{port or self.server.port}", *arguments[1:],
                            XDG_STATE_HOME=self.state.name, **options)
        self.addCleanup(terminal.close)
        return terminal

    def history_lines(self):
        with open(self.history, encoding="utf-8") as file:
            return file.read().splitlines()


class Chat(TerminalCase):
    def open_chat(self, *arguments):
        terminal = self.open("chat", *arguments)
        terminal.wait_for(PROMPT)
        return terminal

    def test_it_says_whom_one_speaks_with(self):
        terminal = self.open("chat")
        terminal.wait_for(", 8192 tokens of context")
        terminal.wait_for(PROMPT)
        terminal.type(CTRL_D)
        self.assertEqual(terminal.wait_exit(), 0)

    def test_a_conversation(self):
        first = self.stub.Chat(chat(("user", "Hi"), max_tokens=20))
        second = self.stub.Chat(chat(("user", "Hi"), ("assistant", first.outputs[0].text), ("user", "Bye"),
                                     max_tokens=5))
        terminal = self.open_chat("--temperature", "0", "--max-tokens", "20")
        terminal.type("Hi" + ENTER)
        shown = terminal.wait_for(PROMPT).replace("\r\n", "\n")
        self.assertIn(first.outputs[0].text.strip().split("\n")[0], shown)
        terminal.type("Bye" + ENTER)
        terminal.wait_for(PROMPT)
        terminal.type("/stats" + ENTER)
        self.assertIn(f"prompt {second.usage.prompt_tokens} tokens", terminal.wait_for("turn 2; the conversation has "))
        terminal.type("/exit" + ENTER)
        self.assertEqual(terminal.wait_exit(), 0)
        self.assertEqual(self.history_lines(), ["Hi", "Bye", "/stats", "/exit"])

    def test_ctrl_c_stops_the_answer_alone(self):
        terminal = self.open_chat("--ignore-eos", "--seed", "1", "--stats")
        terminal.type("Tell me a long story." + ENTER)
        terminal.wait_for("\n")
        while self.server.load().output_tokens == 0 or self.server.load().num_running == 0:
            time.sleep(0.02)
        time.sleep(0.3)
        terminal.type(CTRL_C)
        terminal.wait_for("(stopped)")
        terminal.wait_for(PROMPT)
        self.server.wait_idle()
        time.sleep(0.15)  # at once it would be the same press
        terminal.type("half a line" + CTRL_C)  # at the prompt: it is forgotten
        terminal.wait_for("(/exit or Ctrl-D leaves)")
        terminal.wait_for(PROMPT)
        terminal.type("/help" + ENTER)
        terminal.wait_for("/reset ")
        terminal.type(CTRL_D)
        self.assertEqual(terminal.wait_exit(), 0)
        self.assertEqual(self.history_lines(), ["Tell me a long story.", "/help"])

    def test_commands_change_the_conversation(self):
        count = lambda *messages: self.stub.Chat(chat(*messages, max_tokens=2)).usage.prompt_tokens
        terminal = self.open_chat("--temperature", "0", "--max-tokens", "2")

        def ask(line):
            terminal.type(line + ENTER)
            terminal.wait_for(PROMPT)
            terminal.type("/stats" + ENTER)
            terminal.wait_for("prompt ")
            tokens = int(terminal.wait_for(" tokens").split()[0])
            terminal.wait_for(PROMPT)
            return tokens

        self.assertEqual(ask("Hi"), count(("user", "Hi")))
        for line, said in (("/reset", "a new conversation"), ("/system Be brief.", "the system message is set")):
            terminal.type(line + ENTER)
            terminal.wait_for(said)
            terminal.wait_for(PROMPT)
        self.assertEqual(ask("Hi"), count(("system", "Be brief."), ("user", "Hi")))
        terminal.type("/reset" + ENTER)
        terminal.wait_for("a new conversation")
        terminal.wait_for(PROMPT)
        self.assertEqual(ask("//Hi"), count(("system", "Be brief."), ("user", "/Hi")))
        terminal.type("/nonsense" + ENTER)
        terminal.wait_for("/nonsense: no such command")
        terminal.wait_for(PROMPT)
        terminal.type("/exit" + ENTER)
        self.assertEqual(terminal.wait_exit(), 0)

    def test_characters_are_edited_whole_and_the_history_is_kept(self):
        terminal = self.open_chat()
        terminal.type("/nonsensé😀é" + BACKSPACE + BACKSPACE + ENTER)
        terminal.wait_for("/nonsensé: no such command")
        terminal.wait_for(PROMPT)
        terminal.type(CTRL_D)
        self.assertEqual(terminal.wait_exit(), 0)
        self.assertEqual(self.history_lines(), ["/nonsensé"])
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)
        again = self.open_chat()
        again.type(UP + "è" + ENTER)
        again.wait_for("/nonsenséè: no such command")
        again.type(CTRL_D)
        self.assertEqual(again.wait_exit(), 0)

    def test_the_terminal_is_left_as_it_was(self):
        for end, code in ((lambda terminal: terminal.type(CTRL_D), 0),
                          (lambda terminal: terminal.process.send_signal(signal.SIGTERM), 143)):
            terminal = self.open_chat()
            for _ in range(200):  # until the line is being edited
                if terminal.modes() != terminal.found:
                    break
                time.sleep(0.01)
            self.assertNotEqual(terminal.modes(), terminal.found)
            end(terminal)
            self.assertEqual(terminal.wait_exit(), code)
            self.assertEqual(terminal.modes(), terminal.found)

    def test_nobody_is_there(self):
        terminal = self.open("chat", port=1)
        self.assertEqual(terminal.wait_exit(), 4)
        self.assertIn("no server at 127.0.0.1:1", terminal.shown)
        self.assertNotIn(PROMPT, terminal.shown)
        self.assertEqual(terminal.modes(), terminal.found)

    def test_a_failed_turn_is_no_part_of_it(self):
        terminal = self.open_chat("--top-p", "2")
        terminal.type("Hi" + ENTER)
        terminal.wait_for("INVALID_ARGUMENT: sampling.top_p")
        terminal.wait_for(PROMPT)
        terminal.type("/stats" + ENTER)
        terminal.wait_for("no answer yet")
        terminal.type("/exit" + ENTER)
        self.assertEqual(terminal.wait_exit(), 5)


class Generate(TerminalCase):
    def test_without_a_prompt_at_a_terminal(self):
        terminal = self.open("generate")
        self.assertEqual(terminal.wait_exit(), 2)
        self.assertIn("no prompt: give it as an argument, with --file, or through the standard input", terminal.shown)


class Load(TerminalCase):
    def test_a_screen_that_changes(self):
        terminal = self.open("load", "--interval-ms", "50", port=self.server.control_port, columns=90)
        terminal.wait_for("0 running")
        terminal.wait_for("of 600 x 16 tokens")
        request = chat(("user", "Tell me a long story."), ignore_eos=True, max_tokens=300)
        stream = self.stub.ChatStream(request)
        next(stream)
        terminal.wait_for("1 running")
        stream.cancel()
        terminal.wait_for("0 running")
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait_exit(), 0)
        self.assertIn("\x1b[?25l", terminal.shown)
        self.assertTrue(terminal.shown.rstrip().endswith("\x1b[?25h"), terminal.shown[-200:])
        self.assertIn(SMOLLM2.rpartition("/")[2].removesuffix(".gguf"), terminal.shown)

    def run_load(self, *arguments, port=None):
        return subprocess.run([CLIENT, "load", "--address", f"127.0.0.1:{port or self.server.control_port}",
                               "--interval-ms", "20", *arguments], capture_output=True, text=True, timeout=60)

    def test_lines_where_there_is_no_terminal(self):
        plain = self.run_load("--count", "3")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        lines = plain.stdout.splitlines()
        self.assertEqual(len(lines), 3)
        for line in lines:
            words = line.split()
            values = dict(zip(words[::2], map(float, words[1::2])))
            self.assertEqual(values["held"] + values["cached"] + values["free"], 600)
            self.assertEqual(values["unaccounted"], 0)
            phases = sum(values[f"{name}_ms"] for name in ("schedule", "build", "forward", "sample", "commit"))
            self.assertAlmostEqual(phases, values["step_ms"], delta=0.02)
        objects = [json.loads(line) for line in self.run_load("--count", "2", "--json").stdout.splitlines()]
        self.assertEqual([load["blocks_total"] for load in objects], [600, 600])
        self.assertIn("forward_ms", objects[0]["mean_step_phases"])

    def test_how_it_ends(self):
        for address, words in ((self.server.port, "may be the server's --grpc-port"),
                               (1, "no server at 127.0.0.1:1\nstart one with: folio-server")):
            gone = self.run_load(port=address)
            self.assertEqual((gone.returncode, gone.stdout), (4, ""))
            self.assertIn(words, gone.stderr)
        wrong = self.run_load("--interval-ms", "5")
        self.assertEqual(wrong.returncode, 2)
        for flags, number, code in (((), signal.SIGINT, 0), (("--count", "1000000"), signal.SIGINT, 130),
                                    ((), signal.SIGTERM, 143)):
            client = subprocess.Popen([CLIENT, "load", "--address", f"127.0.0.1:{self.server.control_port}",
                                       "--interval-ms", "20", *flags], stdout=subprocess.PIPE, text=True)
            self.assertIn("running 0", client.stdout.readline())
            client.send_signal(number)
            client.communicate(timeout=20)
            self.assertEqual(client.returncode, code)


class Completion(unittest.TestCase):
    """The script in a real bash, as the shell itself would call it."""

    def complete(self, *words):
        script = subprocess.run([CLIENT, "completion", "bash"], capture_output=True, text=True, check=True).stdout
        quoted = " ".join("'" + word + "'" for word in words)
        # Outside of a completion compopt has nothing to change.
        ask = (f"compopt() {{ :; }}\n{script}\nCOMP_WORDS=(folio-client {quoted}); COMP_CWORD={len(words)}\n"
               '_folio_client; printf "%s\\n" "${COMPREPLY[@]}"')
        shell = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True)
        self.assertEqual(shell.stderr, "")
        return shell.stdout.split()

    def test_commands_and_options(self):
        self.assertEqual(self.complete("ge"), ["generate"])
        self.assertEqual(self.complete("completion", ""), ["--help", "bash"])
        self.assertEqual(self.complete("bench", "--api", ""), ["grpc", "openai"])
        self.assertEqual(self.complete("bench", "--arrivals", "p"), ["poisson"])
        self.assertEqual(self.complete("plan", "--dtype", ""), ["f32", "f16", "bf16", "int8"])
        self.assertEqual(self.complete("plan", ""), [])  # bash itself then offers files
        self.assertEqual(self.complete("plan", "--mem"), ["--memory"])
        self.assertEqual(self.complete("bench", "sweep", "--over", ""), ["concurrency", "rate"])
        self.assertEqual(self.complete("generate", "--max"), ["--max-tokens"])
        self.assertEqual(self.complete("chat", "--address", "host:1", "--sys"), ["--system"])
        self.assertEqual(self.complete("load", "--max"), [])
        self.assertEqual(self.complete("generate", "--tenant", "chat", "--fi"), ["--file"])  # a value is no command
        self.assertEqual(self.complete("generate", "--max-tokens", "--"), [])

    def test_it_knows_every_command_that_help_lists(self):
        text = subprocess.run([CLIENT, "--help"], capture_output=True, text=True, check=True).stdout
        listed = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
        commands = [line.split()[0] for line in listed.splitlines()]
        self.assertGreaterEqual(len(commands), 5)
        for command in commands:
            self.assertIn(command, self.complete(""))
            text = subprocess.run([CLIENT, command, "--help"], capture_output=True, text=True, check=True).stdout
            options = {word.split(",")[-1]  # of "-h,--help"
                       for line in text.splitlines() for word in line.split()[:1] if "--" in word}
            self.assertTrue(options)
            for option in options:
                self.assertIn(option, self.complete(command, "--"), f"{command} {option}")


if __name__ == "__main__":
    unittest.main()
