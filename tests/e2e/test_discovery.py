"""What a tool without our .proto files finds out by itself: reflection, and health that is watched. Run by the
Python of build/openai, where scripts/setup --with-tests installs gRPC's reflection client."""

import threading
import time
import unittest

import grpc
from google.protobuf import descriptor_pool, message_factory

try:
    from grpc_reflection.v1alpha import proto_reflection_descriptor_database as reflection
except ImportError:
    reflection = None

from folio.v1 import control_pb2
from support import NOT_SERVING, SERVING, TINY, Code, Server, watch_health


@unittest.skipUnless(reflection, "grpcio-reflection is not there: scripts/setup --with-tests installs it into build/openai")
class Reflection(unittest.TestCase):
    """gRPC's own reflection client, from another implementation; it knows nothing of folio.v1."""

    def setUp(self):
        self.server = Server(TINY, "--kv-blocks", "100", "--threads", "2")
        self.addCleanup(self.server.close)

    def test_each_listener_lists_its_own(self):
        both = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
        for channel, service, method in ((self.server.channel, "folio.v1.Generation", "ChatStream"),
                                         (self.server.control_channel, "folio.v1.Control", "DumpBlocks")):
            database = reflection.ProtoReflectionDescriptorDatabase(channel)
            self.assertEqual(set(database.get_services()), both | {service})
            pool = descriptor_pool.DescriptorPool(database)
            self.assertTrue(pool.FindServiceByName(service).methods_by_name[method].server_streaming)
            with self.assertRaises(KeyError):
                pool.FindServiceByName("no.such.Service")
            with self.assertRaises(KeyError):
                database.FindFileByName("no/such/file.proto")

    def test_a_call_made_of_what_reflection_says(self):
        pool = descriptor_pool.DescriptorPool(reflection.ProtoReflectionDescriptorDatabase(self.server.channel))
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
