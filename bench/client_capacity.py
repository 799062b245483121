#!/usr/bin/env python3
"""What one folio-client process can drive: bench/client_capacity.py [--streams 1000] [--rate 20000] [--seconds 20]

Needs a build with tests (build/bin/folio-client, stub_server). The client runs on one core, a server without a model on
the others (or on the same one, where there is only one); over loopback. Prints the rate, the client's CPU time and how
late it was. docs/performance.md has the figures.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--streams", type=int, default=1000, help="at a time (1000)")
    parser.add_argument("--rate", type=float, default=20000, help="tokens a second that the server makes (20000)")
    parser.add_argument("--seconds", type=float, default=20, help="in which requests are sent (20)")
    parser.add_argument("--tokens", type=int, default=100, help="of an answer (100)")
    parser.add_argument("--burst", action="store_true", help="the tokens of all streams come at the same moments")
    options = parser.parse_args()
    for name in ("streams", "rate", "seconds", "tokens"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name}: above 0")
    for name in ("folio-client", "stub_server"):
        if not (options.bin / name).is_file():
            parser.error(f"{options.bin / name}: not there")

    cores = sorted(os.sched_getaffinity(0))
    mine, others = {cores[0]}, set(cores[1:]) or {cores[0]}
    gap_ms = options.streams / options.rate * 1000
    server = subprocess.Popen(
        [options.bin / "stub_server", "--first-ms", str(gap_ms), "--itl-ms", str(gap_ms),
         *(["--burst"] if options.burst else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, others))
    try:
        port = int(server.stdout.readline())
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            client = subprocess.Popen(
                [options.bin / "folio-client", "bench", "--address", f"127.0.0.1:{port}", "--concurrency",
                 str(options.streams), "--ramp", str(gap_ms * options.tokens / 1000), "--duration",
                 str(options.seconds), "--prompt-tokens", "16", "--output-tokens", str(options.tokens), "--json",
                 file.name], stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, mine))
            output, _ = client.communicate()
            if client.returncode:
                sys.exit(f"client_capacity: the client ended with {client.returncode}\n{output}")
            result = json.load(file)
    finally:
        server.stdin.close()
        server.wait()
    client, itl = result["client"], result["itl_ms"]
    print(output)
    print(f"{options.streams} streams, {result['peak_output_tokens_per_second']:.0f} tokens/s in the best second, "
          f"{result['output_tokens_per_second']:.0f} with ramp and end; client {client['cpu_s']:.2f} s of CPU time, "
          f"{100 * client['cpu_s'] / result['duration_s']:.0f} % of its core, "
          f"{client['cpu_s'] / result['output_tokens'] * 1e6:.1f} us a token; read late p99 "
          f"{client['read_lag_ms']['p99']:.2f} ms, sent late p99 {client['own_delay_ms']['p99']:.2f} ms; "
          f"gap {gap_ms:.1f} ms, measured p50 {itl['p50']:.1f}, p99 {itl['p99']:.1f}")


if __name__ == "__main__":
    main()
