"""Peers that fall silent: a stopped process, whose kernel still answers, and a network that is cut in mid-call, where nothing
does. Both take about 20 s of waiting, side by side.

The network that is cut is the loopback of a namespace of its own: this program runs itself in one (--cut).
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

import grpc

from folio.v1 import control_pb2, control_pb2_grpc
from http_support import RawSocket
from support import SERVING, TINY, SMOLLM2, Server, check_health, generate, watch_health

LONG = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "temperature": 0}
SILENCE_S = 20
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
NEW_NETWORK = ["unshare", "--user", "--map-root-user", "--net"]


def set_loopback(is_up):
    with socket.socket() as any_socket:
        name, flags = struct.unpack("16sh", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0)))
        flags = flags | IFF_UP if is_up else flags & ~IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", name, flags))


def wait_for(condition, seconds):
    """-> after how long it held"""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.05)
    return time.monotonic() - start


def cut_the_network():
    """In a namespace of its own. Prints what was seen, as JSON."""
    set_loopback(True)
    server = Server(SMOLLM2, "--kv-blocks", "2048", "--threads", "1", "--log-level", "debug")
    try:
        calls = [RawSocket(server.http_port) for _ in range(4)]
        for number, raw in enumerate(calls):
            raw.post("/v1/completions", {**LONG, "stream": number >= 2})
        for raw in calls[2:]:
            raw.read_until(b"data: ")
        grpc_call = server.stub.GenerateStream(generate("x", max_tokens=8000, ignore_eos=True))
        next(grpc_call)
        wait_for(lambda: server.load().num_running == 5, 10)
        set_loopback(False)
        silent = lambda: [line for line in server.lines if "a peer is silent" in line]
        took = wait_for(lambda: len(silent()) == 2, SILENCE_S + 10)
        time.sleep(2)  # those that only wait are the kernel's to ask: at 20 s too
        set_loopback(True)
        # Whoever was not given up would go on for a minute now that the network is back.
        with server.connect(port=server.control_port) as channel:
            load = control_pb2_grpc.ControlStub(channel).GetLoad(control_pb2.GetLoadRequest(), timeout=5)
        print(json.dumps({"took": took, "running": load.num_running, "held": load.blocks_held}))
    finally:
        server.close()


def may_cut():
    return os.path.exists(SMOLLM2) and shutil.which("unshare") and subprocess.run([*NEW_NETWORK, "true"]).returncode == 0


class Silence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cut = None
        if may_cut():
            cls.cut = subprocess.Popen([*NEW_NETWORK, sys.executable, "-B", __file__, "--cut"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        if cls.cut:
            cls.cut.kill()  # if it is still there
            cls.cut.communicate()

    def test_the_network_is_cut(self):
        if not self.cut:
            self.skipTest(f"a network namespace of our own is not allowed here, or {SMOLLM2} is not there")
        printed, errors = self.cut.communicate(timeout=90)
        self.assertEqual(self.cut.returncode, 0, errors)
        seen = json.loads(printed)
        self.assertEqual((seen["running"], seen["held"]), (0, 0))
        self.assertGreater(seen["took"], SILENCE_S - 2)

    def test_pings_without_calls_and_a_stopped_client(self):
        server = Server(TINY, "--kv-blocks", "200")
        self.addCleanup(server.close)
        # A client that pings an idle connection every 6 s, and one that is stopped in mid-stream.
        pinging = server.connect(**{"grpc.keepalive_time_ms": 6000, "grpc.keepalive_permit_without_calls": 1,
                                    "grpc.http2.max_pings_without_data": 0})
        self.assertEqual(check_health(pinging), SERVING)
        states = []
        pinging.subscribe(states.append)
        client = subprocess.Popen([sys.executable, __file__, "--watch", str(server.port)], stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"open\n")
        try:
            client.send_signal(signal.SIGSTOP)
            end = time.monotonic() + 30
            peers = lambda: established(server.process.pid, server.port)
            before = peers()
            while time.monotonic() < end and peers() >= before:
                time.sleep(0.5)
            self.assertLess(peers(), before, "a silent peer is given up within 30 s")
        finally:
            client.kill()
            client.wait()
            client.stdout.close()
        self.assertNotIn(grpc.ChannelConnectivity.TRANSIENT_FAILURE, states)
        self.assertEqual(check_health(pinging), SERVING)
        self.assertEqual(states.count(grpc.ChannelConnectivity.CONNECTING), 0)
        pinging.close()


def established(pid, port):
    """Connections to this process's port, from the kernel's tables."""
    rows = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            rows += [line.split() for line in file][1:]
    return sum(1 for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01")


def hold_a_watch_open(port):
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    watch = watch_health(channel)
    next(watch)
    print("open", flush=True)
    next(watch)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        hold_a_watch_open(int(sys.argv[2]))
    elif sys.argv[1:] == ["--cut"]:
        cut_the_network()
    else:
        unittest.main()
