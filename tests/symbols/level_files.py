"""What the compiler made of the kernel files of an instruction-set level.

Such a file is compiled for more than the x86-64-v2 of everything else. If it defined a function that another file
defines too (an inline function, a template of std), the linker might keep this copy for every machine, and a machine
without the level would die of it. The same holds for code that runs before main. So in these files everything is local
but the entry points, and in all other files no instruction is above x86-64-v2.
"""
import re
import subprocess

# In the words of `nm --format=posix`: a weak or unique symbol is one of which the linker keeps any one copy.
WEAK, GLOBAL = set("VvWwu"), set("ABCDGRST")
# AVX and AVX-512 are the instructions that begin with v; FMA and F16C too. The others are BMI and MOVBE. (A generic
# `rep bsf` reads as tzcnt and runs anywhere.)
ABOVE_V2 = re.compile(r"^\s*[0-9a-f]+:\s+(?:v[a-z]\w*|andn|bextr|bls[ir]|blsmsk|shlx|shrx|sarx|rorx|mulx|pdep|pext"
                      r"|lzcnt|movbe)\b")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")


def output_of(*command) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout


def check_level_object(path: str, entry: re.Pattern) -> list:
    """Complaints about an object of a level. `entry` matches the demangled names that may be seen from outside."""
    complaints, entries = [], 0
    for line in output_of("nm", "--format=posix", "--defined-only", "--demangle", path).splitlines():
        name, kind = re.fullmatch(r"(.+) ([A-Za-z]) [0-9a-f]+(?: [0-9a-f]*)?", line.rstrip()).groups()
        if kind in WEAK:
            complaints.append(f"{path}: {name} may replace the copy of another file")
        elif kind in GLOBAL and entry.search(name):
            entries += 1
        elif kind in GLOBAL:
            complaints.append(f"{path}: {name} is not local")
    if not entries:
        complaints.append(f"{path}: no entry point ({entry.pattern})")
    sections = output_of("objdump", "--section-headers", path)
    if re.search(r"\s\.(init_array|ctors)", sections):
        complaints.append(f"{path}: runs code before main, on every machine")
    return complaints


def check_plain_object(path: str) -> list:
    """Complaints about an object of any other file: instructions that x86-64-v2 does not have."""
    complaints, function, seen = [], "", set()
    with subprocess.Popen(["objdump", "--disassemble", "--no-show-raw-insn", "--demangle", path],
                          stdout=subprocess.PIPE, text=True, errors="replace") as objdump:
        for line in objdump.stdout:
            if match := FUNCTION.match(line):
                function = match[1]
            elif function not in seen and ABOVE_V2.match(line):
                seen.add(function)
                complaints.append(f"{path}: {function} has {' '.join(line.split()[1:])}")
    if objdump.returncode:
        raise RuntimeError(f"objdump {path}: exit status {objdump.returncode}")
    return complaints
