#!/usr/bin/env python3
"""What serving costs beside the engine alone, start, memory and idleness: bench/serving.py [--model FILE] [--rounds N]

Needs a build (build/bin/folio-server, folio-client, folio-bench). Everything runs on this machine's cores, over
loopback on free ports. Writes serving.md and serving.json to --out. docs/performance.md says how each figure is taken.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Prompt tokens, output tokens, requests, --target-itl-ms: half the work prefill, and decode nearly alone.
CASES = [(128, 64, 64, 100), (16, 160, 32, 100)]
CONCURRENCY = 32
PROGRAMS = ("folio-server", "folio-client", "folio-bench")
ENGINE_THREADS = ("folio-engine", "folio-worker")
TICK = os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    print(f"serving: {text}", file=sys.stderr, flush=True)


def thread_times(pid: int) -> dict:
    """CPU seconds of a process's live threads: id -> (name, seconds)."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text()
            # In nanoseconds; the ticks of `stat` would lose what a thread does in less than one.
            seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:  # it ended meanwhile
            continue
        times[task.name] = (stat[stat.index("(") + 1:stat.rindex(")")], seconds)
    return times


def process_time(pid: int) -> float:
    """CPU seconds of all its threads, the ended ones included."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def pss(pid: int) -> float:
    """MiB."""
    return int(re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1]) / 1024


class Server:
    def __init__(self, options, *flags: str):
        start = time.monotonic()
        self.process = subprocess.Popen(
            [options.bin / "folio-server", "--model", options.model, "--grpc-port", "0", "--http-port", "off",
             "--control-listen", "off", *flags],
            stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"gRPC on .*:(\d+)$", line):
                self.port = int(found[1])
            if found := re.search(r"ready: .*, (\d+) blocks of (\d+) tokens", line):
                break
        else:
            sys.exit("".join(lines) + "serving: the server did not start")
        self.seconds_to_ready = time.monotonic() - start
        self.num_slots = int(found[1]) * int(found[2])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def run_engine(options, prompt: int, output: int, requests: int, target: int, seed: int) -> dict:
    done = subprocess.run(
        [options.bin / "folio-bench", "load", "--json", "--model", options.model, "--concurrency", str(CONCURRENCY),
         "--prompt-tokens", str(prompt), "--output-tokens", str(output), "--num-requests", str(requests), "--seed",
         str(seed), "--target-itl-ms", str(target)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run_client(options, server: Server, prompt: int, output: int, requests: int, seed: int) -> dict:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        client = subprocess.Popen(
            [options.bin / "folio-client", "bench", "--address", f"127.0.0.1:{server.port}", "--concurrency",
             str(CONCURRENCY), "--prompt-tokens", str(prompt), "--output-tokens", str(output), "--num-requests",
             str(requests), "--seed", str(seed), "--temperature", "0", "--json", file.name], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        if client.returncode:
            sys.exit(f"serving: the client ended with {client.returncode}")
        result = json.load(file)
    if result["num_ok"] != requests:
        sys.exit(f"serving: the client failed: {result['errors']}")
    result["client_cpu_s"] = usage.ru_utime + usage.ru_stime
    return result


def run_server(options, prompt: int, output: int, requests: int, target: int, seed: int) -> dict:
    """A new process each time, as the engine is: no prompt is in its cache."""
    with Server(options, "--kv-memory", options.kv_memory, "--target-itl-ms", str(target)) as server:
        run_client(options, server, prompt, output, 4, seed + 1000)  # touches what is used first
        before, all_before = thread_times(server.pid), process_time(server.pid)
        result = run_client(options, server, prompt, output, requests, seed)
        after, all_after = thread_times(server.pid), process_time(server.pid)
    threads = {}
    for task, (name, seconds) in after.items():
        threads[name] = threads.get(name, 0.0) + seconds - before.get(task, ("", 0.0))[1]
    engine = sum(threads.get(name, 0.0) for name in ENGINE_THREADS)
    front = sum(threads.values()) - engine
    tokens = result["output_tokens"]
    return {"duration_s": result["duration_s"], "output_tok_s": result["output_tokens_per_second"],
            "itl_p50_ms": result["itl_ms"]["p50"], "ttft_p50_ms": result["ttft_ms"]["p50"], "engine_cpu_s": engine,
            "front_cpu_s": front, "front_us_per_token": front / tokens * 1e6,
            "server_cpu_s": all_after - all_before, "client_cpu_s": result["client_cpu_s"],
            "client_us_per_token": result["client_cpu_s"] / tokens * 1e6, "threads_s": threads}


def measure_load(options, case) -> dict:
    prompt, output, requests, target = case
    rounds = []
    for i in range(options.rounds):
        sides = {}
        # Who goes first changes, so that a machine that grows slower does not favour one.
        for side in (("engine", "server") if i % 2 == 0 else ("server", "engine")):
            run = run_engine if side == "engine" else run_server
            sides[side] = run(options, prompt, output, requests, target, seed=i)
        sides["ratio"] = sides["server"]["output_tok_s"] / sides["engine"]["output_tok_s"]
        say(f"{prompt} + {output}, target {target} ms: engine {sides['engine']['output_tok_s']:.0f} tok/s, "
            f"server {sides['server']['output_tok_s']:.0f}, {100 * sides['ratio']:.1f} %")
        rounds.append(sides)
    return {"prompt_tokens": prompt, "output_tokens": output, "requests": requests, "target_itl_ms": target,
            "ratio": median(r["ratio"] for r in rounds),
            "best_to_best": max(r["server"]["output_tok_s"] for r in rounds) /
                            max(r["engine"]["output_tok_s"] for r in rounds), "rounds": rounds}


def measure_start(options) -> list:
    """Seconds from exec to the ready line, and PSS then, above a process that does nothing. The first run warms up."""
    with subprocess.Popen(["sleep", "60"]) as nothing:
        time.sleep(0.1)
        empty = pss(nothing.pid)
        nothing.kill()
    results = []
    for flags in (["--kv-memory", "256MiB"], []):
        seconds, memory = [], []
        for i in range(options.rounds + 1):
            with Server(options, *flags) as server:
                if i > 0:
                    seconds.append(server.seconds_to_ready)
                    memory.append(pss(server.pid) - empty)
                slots = server.num_slots
        results.append({"flags": " ".join(flags) or "defaults", "kv_slots": slots, "seconds": seconds,
                        "pss_mib": memory, "file_mib": options.model.stat().st_size / (1 << 20)})
        say(f"start, {results[-1]['flags']}: {median(seconds):.3f} s, PSS {median(memory):.0f} MiB")
    return results


def hold_connection(port: int) -> socket.socket:
    """An HTTP/2 connection without a call, that answers pings and settings until it is closed."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

    def read():
        stream = link.makefile("rb")
        while len(head := stream.read(9)) == 9:
            body = stream.read(int.from_bytes(head[:3], "big"))
            if head[4] & 1 == 0 and head[3] in (4, 6):  # settings, ping
                answer = body if head[3] == 6 else b""
                link.sendall(len(answer).to_bytes(3, "big") + bytes([head[3], 1, 0, 0, 0, 0]) + answer)

    threading.Thread(target=read, daemon=True).start()
    return link


def measure_idle(options) -> list:
    results = []
    with Server(options, "--kv-memory", options.kv_memory) as server:
        run_client(options, server, 16, 16, 32, 0)  # every thread has been started
        for connections in (0, CONCURRENCY):
            links = [hold_connection(server.port) for _ in range(connections)]
            time.sleep(2)
            before, start = thread_times(server.pid), time.monotonic()
            time.sleep(options.idle_seconds)
            used = sum(seconds - before.get(task, ("", 0.0))[1]
                       for task, (_, seconds) in thread_times(server.pid).items())
            percent = 100 * used / (time.monotonic() - start)
            results.append({"connections": connections, "percent_of_a_core": percent})
            say(f"idle, {connections} connections: {percent:.3f} % of a core")
            for link in links:
                link.shutdown(socket.SHUT_RDWR)
                link.close()
    return results


def markdown(result: dict) -> str:
    mid = lambda values, digits: f"{median(values):.{digits}f}"
    out = [f"# Serving, {result['model']}, {result['cores']} cores", "",
           f"{CONCURRENCY} callers in a closed loop; medians of {result['num_rounds']} rounds, the ratio within each.",
           "", "| prompt + output, requests, target ms | engine tok/s | server tok/s | ratio | range | best to best "
           "| CPU s: engine in the server | front | client | engine alone | front µs/token | client µs/token |",
           "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for case in result["load"]:
        servers = [r["server"] for r in case["rounds"]]
        of = lambda key, digits, servers=servers: mid([s[key] for s in servers], digits)
        ratios = [r["ratio"] for r in case["rounds"]]
        out.append(f"| {case['prompt_tokens']} + {case['output_tokens']}, {case['requests']}, {case['target_itl_ms']} "
                   f"| {mid([r['engine']['output_tok_s'] for r in case['rounds']], 0)} | {of('output_tok_s', 0)} "
                   f"| {100 * case['ratio']:.1f} % | {100 * min(ratios):.1f} - {100 * max(ratios):.1f} % "
                   f"| {100 * case['best_to_best']:.1f} % "
                   f"| {of('engine_cpu_s', 2)} | {of('front_cpu_s', 2)} "
                   f"| {of('client_cpu_s', 2)} | {mid([r['engine']['cpu_s'] for r in case['rounds']], 2)} "
                   f"| {of('front_us_per_token', 1)} | {of('client_us_per_token', 1)} |")
    out += ["", "| start | seconds to ready | KV slots | PSS MiB above an empty process | file MiB |",
            "|---|---|---|---|---|"]
    for start in result["start"]:
        out.append(f"| {start['flags']} | {mid(start['seconds'], 3)} | {start['kv_slots']} "
                   f"| {mid(start['pss_mib'], 0)} | {start['file_mib']:.1f} |")
    out += ["", "| idle, open connections | % of a core |", "|---|---|"]
    out += [f"| {idle['connections']} | {idle['percent_of_a_core']:.3f} |" for idle in result["idle"]]
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2-135m-q4_1.gguf")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kv-memory", default="512MiB", help="of the server under load (default: 512MiB)")
    parser.add_argument("--idle-seconds", type=float, default=15)
    parser.add_argument("--only", choices=["load", "start", "idle"], help="one part alone")
    parser.add_argument("--out", type=pathlib.Path,
                        help="folder of the results (default: bench/results, and of a part build/bench-results)")
    options = parser.parse_args()
    if options.out is None:  # what is kept is whole
        options.out = ROOT / ("build/bench-results" if options.only else "bench/results")
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.idle_seconds <= 0:
        parser.error("--idle-seconds: above 0")
    for path in [options.model] + [options.bin / name for name in PROGRAMS]:
        if not path.is_file():
            parser.error(f"{path}: not there")
    wanted = lambda part: options.only in (None, part)
    result = {"model": options.model.name, "cores": len(os.sched_getaffinity(0)), "num_rounds": options.rounds,
              "start": measure_start(options) if wanted("start") else [],
              "idle": measure_idle(options) if wanted("idle") else [],
              "load": [measure_load(options, case) for case in CASES] if wanted("load") else []}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "serving.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (options.out / "serving.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
