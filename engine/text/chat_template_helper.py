# The process that renders chat templates for folio (engine/text/chat_helper.h), embedded in the server as a string.
#
# Descriptor 0 is a socket to the server. A frame to here: length (4 bytes, little-endian), JSON. A frame from here:
# length of the text, kind (1 byte), text in UTF-8. Kinds: O ready, S the set-up failed, R rendered, X the template
# called raise_exception, E the render failed in another way. The first frame is the set-up, every other one a render.
#
# Ends at the end of the stream, so it does not outlive the server; ITIMER_REAL ends it in the middle of a render that
# the server no longer watches. One thread only: the wall limit bounds the CPU time too.
import json
import os
import resource
import signal
import sys


def read_frame():
    return json.loads(read_bytes(int.from_bytes(read_bytes(4), "little")))


def read_bytes(size):
    data = bytearray()
    while len(data) < size:
        part = os.read(0, min(size - len(data), 1 << 20))
        if not part:
            os._exit(0)
        data += part
    return data


def write_frame(kind, data):
    data = memoryview(len(data).to_bytes(4, "little") + kind + data)
    while data:
        data = data[os.write(0, data):]


def limit_process(max_memory):
    for name, value in (("AS", max_memory), ("CORE", 0), ("FSIZE", 0), ("NOFILE", 64)):
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for name in (signal.SIGINT, signal.SIGTERM):  # for the server to answer; this process follows it
        signal.signal(name, signal.SIG_IGN)


class RaisedByTemplate(Exception):
    pass


class OutputTooLong(Exception):
    pass


def make_template(setup):
    import datetime

    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %}...{% endgeneration %} marks what a model wrote, for training; here only its body counts."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        # Powers are not folded while compiling: 9**(9**9) then meets the limits of a render, not of the start.
        intercepted_binops = frozenset(["**"])

    def raise_exception(message):
        raise RaisedByTemplate(str(message))

    def strftime_now(format):
        fixed = setup["now"]
        return (datetime.datetime.fromisoformat(fixed) if fixed else datetime.datetime.now()).strftime(format)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.LoopControlExtension, Generation]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string(setup["template"])


def compile_template(setup):
    try:
        return b"O", make_template(setup)
    except ModuleNotFoundError as error:
        return b"S", f"{error} for {sys.executable} (Debian's package python3-jinja2 has it)"
    except Exception as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        return b"S", f"the template does not compile: {where}{describe(error)}"


def to_bytes(text):
    return text.encode("utf-8", "replace")


def describe(error):
    return f"{type(error).__name__}: {error}"[:2000]


def render(template, setup, request):
    variables = {"documents": None, **request["args"]}
    for name in ("messages", "tools", "add_generation_prompt"):
        variables[name] = request[name]
    for name in ("bos_token", "eos_token"):
        variables[name] = setup[name]
    room = setup["max_output"]
    chunks = []
    for chunk in template.generate(variables):
        room -= len(chunk)
        if room < 0:
            raise OutputTooLong
        chunks.append(chunk)
    data = to_bytes("".join(chunks))
    if len(data) > setup["max_output"]:
        raise OutputTooLong
    return data


def answer(template, setup):
    """Reads one request and renders it. Returns the reply; by then nothing of the render is held any more."""
    request = read_bytes(int.from_bytes(read_bytes(4), "little"))
    signal.setitimer(signal.ITIMER_REAL, setup["seconds"])
    try:
        return b"R", render(template, setup, json.loads(request))
    except RaisedByTemplate as error:
        return b"X", to_bytes(str(error)[:2000])
    except OutputTooLong:
        return b"E", b"its output is too long"
    except MemoryError:
        return b"E", b"it needs more memory than a render may use"
    except Exception as error:
        return b"E", to_bytes(describe(error))


def main():
    setup = read_frame()
    limit_process(setup["max_memory"])
    signal.setitimer(signal.ITIMER_REAL, setup["start_seconds"])
    kind, template = compile_template(setup)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if kind == b"S":
        write_frame(kind, to_bytes(template))
        return
    write_frame(kind, b"")
    while True:
        reply = answer(template, setup)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_frame(*reply)


main()
