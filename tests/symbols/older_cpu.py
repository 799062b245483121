"""python3 older_cpu.py CPU PROGRAM ARGUMENT...: runs a program on an emulated CPU; its exit status is this one's.

The emulation stops at an instruction that the CPU does not have, as the CPU itself would.
"""
import shutil
import subprocess
import sys

SKIPPED = 77


def main(cpu: str, *command: str) -> int:
    if not shutil.which("qemu-x86_64"):
        print("qemu-x86_64 is not installed (scripts/setup --with-tests): nothing ran")
        return SKIPPED
    return subprocess.run(["qemu-x86_64", "-cpu", cpu, *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
