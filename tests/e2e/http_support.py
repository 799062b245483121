"""HTTP as tests want it: JSON calls and streams over http.client, and sockets for what a proper client would not send."""

import http.client
import json
import socket

from support import SMOLLM2, ServerCase

EMOJI = "\U0001F999"


class HttpCase(ServerCase):
    """A class of tests that share one server with the default model; each must leave it idle and in good health."""

    MODEL = SMOLLM2
    FLAGS = ("--kv-blocks", "512", "--threads", "2", "--check-invariants")

    def tearDown(self):
        self.assertEqual(self.call("GET", "/health")[0], 200)
        super().tearDown()

    def connection(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=timeout)

    def call(self, method, path, body=None, connection=None, **headers):
        """-> status, headers, what the body's JSON is (or its text)"""
        own = connection is None
        connection = connection or self.connection()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if own:
            connection.close()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, answer.headers, json.loads(text) if kind == "application/json" else text.decode()

    def complete(self, prompt, connection=None, **fields):
        fields.setdefault("temperature", 0)
        status, _, answer = self.call("POST", "/v1/completions", {"prompt": prompt, **fields}, connection)
        self.assertEqual(status, 200, answer)
        return answer

    def chat(self, messages, connection=None, **fields):
        fields.setdefault("temperature", 0)
        status, _, answer = self.call("POST", "/v1/chat/completions", {"messages": messages, **fields}, connection)
        self.assertEqual(status, 200, answer)
        return answer

    def stream(self, path, connection=None, **fields):
        """-> the events of a stream, checked by StrictStream"""
        fields.setdefault("temperature", 0)
        status, headers, text = self.call("POST", path, {"stream": True, **fields}, connection)
        self.assertEqual(status, 200, text)
        self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
        return StrictStream(self, text, is_chat="chat" in path,
                            with_usage=fields.get("stream_options", {}).get("include_usage", False))

    def refused(self, status, param, path, body, **headers):
        got, _, answer = self.call("POST", path, body, **headers)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param, error)
        self.assertLess(len(error["message"].encode()), 1100)
        return error


class StrictStream:
    """Server-sent events by the letter: one [DONE] at the end, one finish reason an index, usage where it belongs."""

    def __init__(self, case, text, is_chat, with_usage):
        case.assertTrue(text.endswith("\n\n"))
        lines = text[:-2].split("\n\n")
        for line in lines:
            case.assertTrue(line.startswith("data: "), line)
        case.assertEqual(lines[-1], "data: [DONE]")
        self.events = [json.loads(line[len("data: "):]) for line in lines[:-1]]
        self.text, self.finish, self.logprobs, self.usage = {}, {}, {}, None
        for key in ("id", "created", "model", "object"):
            case.assertEqual(len({event[key] for event in self.events}), 1, key)
        events = list(self.events)
        if with_usage:
            last = events.pop()
            case.assertEqual(last["choices"], [])
            self.usage = last["usage"]
        for event in events:
            case.assertEqual(event.get("usage", None), None)
            case.assertEqual("usage" in event, with_usage)
            [choice] = event["choices"]
            index = choice["index"]
            case.assertNotIn(index, self.finish, "an event after the finish reason")
            if is_chat:
                case.assertEqual("role" in choice["delta"], index not in self.text)
                piece = choice["delta"].get("content", "")
            else:
                piece = choice["text"]
            self.text[index] = self.text.get(index, "") + piece
            self.logprobs.setdefault(index, []).append(choice["logprobs"])
            if choice["finish_reason"] is not None:
                self.finish[index] = choice["finish_reason"]
        case.assertEqual(set(self.finish), set(self.text))


class RawSocket:
    def __init__(self, port, timeout=20, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def post(self, path, body, *fields):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.send("\r\n".join([*head, *fields, "", ""]).encode() + body)

    def read_until(self, mark):
        data = b""
        while mark not in data:
            piece = self.socket.recv(4096)
            if not piece:
                break
            data += piece
        return data

    def reset(self):
        import struct
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
