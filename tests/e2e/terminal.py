"""A program on a terminal of its own: what it draws is read, keys are typed."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

CTRL_C, CTRL_D, BACKSPACE, UP, ENTER = "\x03", "\x04", "\x7f", "\x1b[A", "\r"


class Terminal:
    """The program's three standard streams are the terminal; `columns` wide."""

    def __init__(self, *command, columns=100, **environment):
        self.shown = ""  # everything, controls too
        self.read_to = 0
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.found = termios.tcgetattr(slave)
        self.slave = slave

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C", **environment})

    def type(self, text):
        os.write(self.master, text.encode())

    def _read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.shown += os.read(self.master, 65536).decode(errors="replace")
        return True

    def wait_for(self, text, seconds=20):
        """Until `text` is shown after what was waited for before; gives what came up to its end."""
        end = time.monotonic() + seconds
        while (at := self.shown.find(text, self.read_to)) < 0:
            if not self._read(0.05) and time.monotonic() > end:
                raise AssertionError(f"no {text!r} in {self.shown[self.read_to:]!r}")
        start, self.read_to = self.read_to, at + len(text)
        return self.shown[start:self.read_to]

    def wait_exit(self, seconds=20):
        code = self.process.wait(timeout=seconds)
        while self._read(0.05):
            pass
        return code

    def modes(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
