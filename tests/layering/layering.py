"""The layering of docs/architecture.md as data, and the checks that hold the sources to it.

Every check takes the tree as a dictionary {path: text} and gives a list of complaints, so that it can be tried on
wrong examples too.
"""
import pathlib
import re
from typing import NamedTuple

POSIX = ("sys/", "fcntl.h", "unistd.h", "sched.h", "pthread.h", "poll.h", "spawn.h", "linux/")
GRPC = ("grpc/", "grpcpp/", "google/protobuf/")


class Module(NamedTuple):
    """One folder (with the folders below it that are no modules), one CMake target."""
    uses: tuple  # modules that its files may include and its target may link; its own is always allowed
    outside: tuple = ()  # beginnings of headers from neither us nor the standard library


# The one place that says who may include whom.
MODULES = {
    "base": Module((), POSIX),
    # Logical: ids and counts.
    "block_manager": Module(("base",)),
    "scheduler": Module(("base", "block_manager")),
    # Physical: bytes and floats.
    "engine/gguf": Module(("base",)),
    "engine/sampling": Module(("base",)),
    "engine/kernels": Module(("base", "engine/gguf", "engine/sampling"), ("immintrin.h", "cpuid.h", "sys/mman.h")),
    "engine/model": Module(("base", "engine/gguf", "engine/kernels", "engine/sampling")),
    # Text.
    "engine/text": Module(("base", "engine/gguf"), POSIX + ("pcre2.h", "nlohmann/")),
    # The only place where logical and physical meet.
    "engine": Module(("base", "block_manager", "scheduler", "engine/gguf", "engine/sampling", "engine/text",
                      "engine/kernels", "engine/model")),
    # Fronts.
    "proto": Module((), GRPC),
    "server": Module(("base", "engine", "engine/text", "proto"), POSIX + GRPC + ("CLI/", "nlohmann/", "prometheus/", "toml++/", "openssl/")),
    "server/http": Module(("base", "engine", "engine/text", "proto", "server"),
                          ("sys/", "netinet/", "boost/", "nlohmann/", "google/protobuf/")),
}
# These may use anything; nothing of the product uses them. Benchmarks use tests/support, and tests use benchmarks.
FREE = ("client", "bench", "tests", "tests/support")
GENERATED = "folio/v1/"  # how headers made from proto/ are included
# Single files that may include more than their module: path -> beginnings of headers.
EXCEPTIONS = {
    # Where nvcc does not compile, tests/simt gives the device's names: the one place where the product names a test.
    "engine/kernels/cuda/device.h": ("simt/device_twin.h",),
    "base/log.cc": ("spdlog/",),
    "server/acceptor.cc": ("netdb.h", "netinet/"),  # listening sockets
}
# The composition root: loads the parts of a server and hands them to the engine; path -> modules beyond its own's.
ROOTS = {
    "server/server.cc": ("engine/gguf", "engine/model", "server/http"),
}
# Folders inside a module whose files may include more than the module's others: folder -> beginnings of headers.
SUBFOLDERS = {
    "engine/kernels/cuda": ("cuda", "cublasLt.h"),
}
# Folders inside a module that do not know each other.
APART = (("engine/kernels/cpu", "engine/kernels/cuda"),)

MAX_LINES = 400
# Files that are longer for a reason: path -> the reason.
LONG_FILES = {}

CODE = (".h", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
# The headers of C++20 have no suffix; these are the C ones that sources may still name.
STANDARD = re.compile(r"[a-z_0-9]+|(stdint|stddef|string|stdlib|stdio|math|errno|signal|time)\.h")


def module_of(path: str):
    """The module that owns a path: the longest folder in MODULES; a FREE folder; None for anything else."""
    if path.startswith(GENERATED):
        return "proto"
    folder = path.rpartition("/")[0]
    while folder:
        if folder in MODULES or folder in FREE:
            return folder
        folder = folder.rpartition("/")[0]
    return None


def includes(text: str):
    """(line number, quoted?, name) of each include."""
    return [(text.count("\n", 0, match.start()) + 1, match[1] == '"', match[2]) for match in INCLUDE.finditer(text)]


def check_includes(tree: dict) -> list:
    """No include across the layers, and nothing from outside but what the module is allowed."""
    complaints = []
    for path, text in sorted(tree.items()):
        module = module_of(path)
        if module is None or module in FREE or not path.endswith(CODE):
            continue
        for line, quoted, name in includes(text):
            reason = refuse_ours(path, module, name) if quoted else refuse_outside(path, module, name)
            if reason:
                complaints.append(f"{path}:{line}: {reason}")
    return complaints


def refuse_ours(path: str, module: str, name: str) -> str:
    target = module_of(name)
    if target is None:
        return f'"{name}" is in no folder of folio: ours are named from the root, others in <>'
    if target not in (module, *MODULES[module].uses, *ROOTS.get(path, ())):
        return f"{module} must not include {target} ({name})"
    for pair in APART:
        for here, there in (pair, pair[::-1]):
            if path.startswith(here + "/") and name.startswith(there + "/"):
                return f"{here} must not include {there} ({name})"
    return ""


def refuse_outside(path: str, module: str, name: str) -> str:
    allowed = MODULES[module].outside + EXCEPTIONS.get(path, ()) + SUBFOLDERS.get(path.rpartition("/")[0], ())
    if STANDARD.fullmatch(name) or any(name.startswith(beginning) for beginning in allowed):
        return ""
    return f"{module} must not include <{name}>"


def find_cycle(edges: dict) -> list:
    """A path [a, b, ..., a] along {node: {nodes}}; empty where there is none."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return []
        trail.append(node)
        for following in sorted(edges.get(node, ())):
            if cycle := visit(following):
                return cycle
        trail.pop()
        done.add(node)
        return []

    for node in sorted(edges):
        if cycle := visit(node):
            return cycle
    return []


def check_cycles(tree: dict) -> list:
    """No cycle between folders, whatever MODULES allows."""
    edges = {}
    for path, text in tree.items():
        module = module_of(path)
        if module is None or not path.endswith(CODE) or path in ROOTS:  # a root is no part of its folder's library
            continue
        for _, quoted, name in includes(text):
            target = module_of(name) if quoted else None
            if target and target != module:
                edges.setdefault(module, set()).add(target)
    cycle = find_cycle(edges)
    return ["folders include each other: " + " -> ".join(cycle)] if cycle else []


LIBRARY = re.compile(r"\b(?:folio|add)_library\(\s*(\w+)([^)]*)\)")
LINKS = re.compile(r"\btarget_link_libraries\(\s*(\w+)([^)]*)\)")
OURS = re.compile(r"\bfolio_\w+")


class Library(NamedTuple):
    module: str  # whose folder it is declared in
    path: str
    links: set  # names of our libraries


def libraries(tree: dict) -> dict:
    """{target name: Library} of the product."""
    found = {}
    for path, text in sorted(tree.items()):
        if path.rpartition("/")[2] != "CMakeLists.txt" or module_of(path) in (None, *FREE):
            continue
        text = re.sub(r"#.*", "", text)
        for name, body in LIBRARY.findall(text):
            links = body.partition("LINK")[2] + " ".join(more for target, more in LINKS.findall(text) if target == name)
            found[name] = Library(module_of(path), path, set(OURS.findall(links)) - {"folio_flags"})
    return found


def check_links(tree: dict) -> list:
    """Libraries link only what their folder may use, and reach all that their folder includes."""
    known, complaints = libraries(tree), []
    for name, library in known.items():
        for other in sorted(library.links):
            if other not in known:
                complaints.append(f"{library.path}: {name} links {other}, which no folder declares")
            elif known[other].module not in (library.module, *MODULES[library.module].uses):
                complaints.append(f"{library.path}: {name} must not link {other}")
    for module in sorted({library.module for library in known.values()}):
        mine = [name for name, library in known.items() if library.module == module]
        reached = {known[name].module for name in reachable(known, mine)}
        complaints += [f"{known[mine[0]].path}: {module} includes {other} and does not link it"
                       for other in sorted(used_modules(tree, module) - reached)]
    return complaints


def used_modules(tree: dict, module: str) -> set:
    """The modules whose headers the libraries of `module` include (a root is no part of one)."""
    used = set()
    for path, text in tree.items():
        if module_of(path) == module and path.endswith(CODE) and path not in ROOTS:
            used |= {module_of(name) for _, quoted, name in includes(text) if quoted} & set(MODULES)
    return used - {module}


def reachable(known: dict, names: list) -> set:
    """`names` and what they link in turn (link lines are PUBLIC)."""
    found, new = set(), set(names)
    while new:
        found |= new
        new = set().union(*(known[name].links for name in new)) & set(known) - found
    return found


def check_files(tree: dict) -> list:
    """Headers have #pragma once; no file has outgrown its purpose."""
    complaints = []
    for path, text in sorted(tree.items()):
        if path.endswith((".h", ".cuh")) and not re.search(r"^#pragma once$", text, re.MULTILINE):
            complaints.append(f"{path}: no #pragma once")
        lines = text.count("\n")
        if lines > MAX_LINES and path not in LONG_FILES:
            complaints.append(f"{path}: {lines} lines, more than {MAX_LINES}: two things live in it")
    complaints += [f"{path}: in LONG_FILES and not there" for path in LONG_FILES if path not in tree]
    return complaints


def read_tree(root: pathlib.Path) -> dict:
    """The sources and CMakeLists.txt below `root`, with paths from there."""
    tree = {}
    for top in sorted({module.partition("/")[0] for module in (*MODULES, *FREE)}):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and (path.suffix in (*CODE, ".py", ".proto") or path.name == "CMakeLists.txt"):
                tree[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return tree
