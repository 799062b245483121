"""What a tool without our .proto files finds out by itself: reflection, and health that is watched."""

import threading
import time
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from folio.v1 import control_pb2
from support import NOT_SERVING, SERVING, TINY, Code, Server, watch_health

REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def reflection_messages():
    """The part of grpc.reflection.v1alpha that is asked here; Debian has no Python package for it."""
    file = descriptor_pb2.FileDescriptorProto(name="reflection_part.proto", package="reflection_part", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for field_name, number, kind, label, type_name in fields:
            added.field.add(name=field_name, number=number, type=kind, label=label,
                            type_name=type_name and f".reflection_part.{type_name}")

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message("Request", ("file_containing_symbol", 4, field.TYPE_STRING, one, None),
            ("list_services", 7, field.TYPE_STRING, one, None))
    message("Files", ("file_descriptor_proto", 1, field.TYPE_BYTES, many, None))
    message("Service", ("name", 1, field.TYPE_STRING, one, None))
    message("Services", ("service", 1, field.TYPE_MESSAGE, many, "Service"))
    message("Failure", ("error_code", 1, field.TYPE_INT32, one, None))
    message("Response", ("files", 4, field.TYPE_MESSAGE, one, "Files"),
            ("services", 6, field.TYPE_MESSAGE, one, "Services"), ("failure", 7, field.TYPE_MESSAGE, one, "Failure"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return [factory.GetPrototype(pool.FindMessageTypeByName(f"reflection_part.{name}"))
            for name in ("Request", "Response")]


class Reflection(unittest.TestCase):
    def setUp(self):
        self.server = Server(TINY, "--kv-blocks", "100", "--threads", "2")
        self.addCleanup(self.server.close)
        self.request, self.response = reflection_messages()

    def ask(self, channel, **question):
        # A field that is asked with the empty string is still a question: it is one of a group.
        data = self.request(**question).SerializeToString() or b"\x3a\x00"
        call = channel.stream_stream(REFLECTION)(iter([data]), timeout=5)
        return self.response.FromString(next(call))

    def services(self, channel):
        return {service.name for service in self.ask(channel, list_services="*").services.service}

    def test_each_listener_lists_its_own(self):
        both = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
        self.assertEqual(self.services(self.server.channel), both | {"folio.v1.Generation"})
        self.assertEqual(self.services(self.server.control_channel), both | {"folio.v1.Control"})
        unknown = self.ask(self.server.channel, file_containing_symbol="no.such.Service")
        self.assertEqual(unknown.failure.error_code, Code.NOT_FOUND.value[0])

    def test_a_call_made_of_what_reflection_says(self):
        found = self.ask(self.server.channel, file_containing_symbol="folio.v1.Generation").files.file_descriptor_proto
        pool = descriptor_pool.DescriptorPool()
        for data in found:
            pool.AddSerializedFile(data)
        service = pool.FindServiceByName("folio.v1.Generation")
        self.assertEqual({method.name for method in service.methods},
                         {"Generate", "GenerateStream", "Chat", "ChatStream", "Tokenize", "Detokenize",
                          "ApplyChatTemplate", "ListModels"})
        factory = message_factory.MessageFactory(pool)
        method = service.methods_by_name["Generate"]
        request = factory.GetPrototype(method.input_type)()
        request.tokens.ids.extend([1, 2, 3])
        request.stopping.max_tokens = 2
        call = self.server.channel.unary_unary(f"/{service.full_name}/{method.name}",
                                               request_serializer=lambda message: message.SerializeToString(),
                                               response_deserializer=factory.GetPrototype(method.output_type).FromString)
        self.assertEqual(call(request, timeout=10).usage.output_tokens, 2)


class HealthWatch(unittest.TestCase):
    """Watch tells every change as it comes, on both listeners, until the server is gone."""

    def test_from_loading_to_draining(self):
        server = Server(TINY, "--kv-blocks", "100", "--threads", "2", "--drain-timeout", "5", wait=False)
        self.addCleanup(server.close)
        seen = {}

        def watch(name, channel):
            try:
                for answer in watch_health(channel):
                    seen[name].append(answer[1])
            except grpc.RpcError as error:
                seen[name].append(error.code())

        threads = []
        for name, channel in (("user", server.channel), ("control", server.control_channel)):
            seen[name] = []
            threads.append(threading.Thread(target=watch, args=(name, channel)))
            threads[-1].start()
        server.wait_line("ready: ")
        end = time.monotonic() + 5
        while not all(SERVING in states for states in seen.values()) and time.monotonic() < end:
            time.sleep(0.01)
        server.control.Drain(control_pb2.DrainRequest(), timeout=5)
        self.assertEqual(server.wait_exit(10), 0)
        for thread in threads:
            thread.join()
        for name, states in seen.items():
            # The first may be missed: a small model is loaded at once.
            self.assertIn(states[:-1], ([NOT_SERVING, SERVING, NOT_SERVING], [SERVING, NOT_SERVING]), (name, states))
            self.assertIn(states[-1], (Code.UNAVAILABLE, Code.CANCELLED), (name, states))


if __name__ == "__main__":
    unittest.main()
