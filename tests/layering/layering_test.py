"""Holds the source tree to the rules of layering.py; each check is shown to fail on a wrong example first."""
import pathlib
import unittest

import layering

ROOT = pathlib.Path(__file__).resolve().parents[2]


class WrongExamples(unittest.TestCase):
    def assert_complaint(self, complaints, *words):
        self.assertEqual(len(complaints), 1, complaints)
        for word in words:
            self.assertIn(word, complaints[0])

    def test_include_against_the_layers(self):
        tree = {"scheduler/scheduler.cc": '#include <vector>\n#include "engine/model/model.h"\n'}
        self.assert_complaint(layering.check_includes(tree), "scheduler/scheduler.cc:2", "engine/model")

    def test_columns_do_not_meet_below_engine(self):
        tree = {"engine/model/llama.cc": '#include "block_manager/block_pool.h"\n'}
        self.assert_complaint(layering.check_includes(tree), "engine/model must not include block_manager")
        self.assertEqual(layering.check_includes({"engine/engine.cc": '#include "block_manager/block_pool.h"\n'}), [])

    def test_the_product_does_not_use_tests(self):
        tree = {"base/x.cc": '#include "tests/support/fake_model.h"\n'}
        self.assert_complaint(layering.check_includes(tree), "base must not include tests")

    def test_cpu_and_cuda_do_not_know_each_other(self):
        tree = {"engine/kernels/cuda/a.cc": '#include "engine/kernels/cpu/b.h"\n'}
        self.assert_complaint(layering.check_includes(tree), "engine/kernels/cuda must not include engine/kernels/cpu")

    def test_only_the_composition_root_sees_the_model(self):
        text = '#include "engine/model/model.h"\n'
        self.assertEqual(layering.check_includes({"server/server.cc": text}), [])
        self.assert_complaint(layering.check_includes({"server/options.cc": text}), "server must not include engine/model")

    def test_include_beside_instead_of_from_the_root(self):
        self.assert_complaint(layering.check_includes({"base/x.cc": '#include "x.h"\n'}), "named from the root")

    def test_header_from_outside(self):
        for path, header in (("scheduler/a.cc", "spdlog/spdlog.h"), ("base/a.cc", "spdlog/spdlog.h"),
                             ("block_manager/a.h", "pthread.h"), ("engine/engine.cc", "grpcpp/grpcpp.h")):
            self.assert_complaint(layering.check_includes({path: f"  # include  <{header}>\n"}), path, header)

    def test_header_from_outside_where_it_is_allowed(self):
        tree = {"base/log.cc": "#include <spdlog/spdlog.h>\n", "base/mapped_file.cc": "#include <sys/mman.h>\n",
                "server/main.cc": "#include <CLI/CLI.hpp>\n", "tests/x_test.cc": "#include <anything.h>\n"}
        self.assertEqual(layering.check_includes(tree), [])

    def test_cuda_and_its_twin(self):
        cuda = "engine/kernels/cuda/"
        self.assertEqual(layering.check_includes({cuda + "device.h": "#include <simt/device_twin.h>\n",
                                                  cuda + "a.cu": "#include <cuda_fp16.h>\n"}), [])
        self.assert_complaint(layering.check_includes({cuda + "a.cu": "#include <simt/device_twin.h>\n"}), "a.cu:1")
        self.assert_complaint(layering.check_includes({"engine/kernels/a.cc": "#include <cuda_fp16.h>\n"}), "cuda_fp16.h")

    def test_cycle_between_folders(self):
        tree = {"base/a.h": '#include "scheduler/b.h"\n', "scheduler/b.h": '#include "block_manager/c.h"\n',
                "block_manager/c.h": '#include "base/a.h"\n'}
        self.assert_complaint(layering.check_cycles(tree), "base -> scheduler -> block_manager -> base")
        del tree["block_manager/c.h"]
        self.assertEqual(layering.check_cycles(tree), [])

    def test_link_against_the_layers(self):
        tree = {"base/CMakeLists.txt": "folio_library(folio_base SOURCES a.cc\n  LINK spdlog::spdlog folio_engine)\n",
                "engine/CMakeLists.txt": "folio_library(folio_engine SOURCES e.cc)\n"}
        self.assert_complaint(layering.check_links(tree), "folio_base must not link folio_engine")

    def test_link_of_a_target_that_no_folder_has(self):
        tree = {"base/CMakeLists.txt": "folio_library(folio_base SOURCES a.cc LINK folio_flags folio_basic) # folio_x"}
        self.assert_complaint(layering.check_links(tree), "folio_base links folio_basic, which no folder declares")

    def test_link_in_a_line_of_its_own(self):
        tree = {"base/CMakeLists.txt": "folio_library(folio_base SOURCES a.cc)\n"
                                       "target_link_libraries(folio_base PRIVATE folio_scheduler)\n",
                "scheduler/CMakeLists.txt": "folio_library(folio_scheduler SOURCES b.cc)\n"}
        self.assert_complaint(layering.check_links(tree), "folio_base must not link folio_scheduler")

    def test_include_without_link(self):
        tree = {"scheduler/CMakeLists.txt": "folio_library(folio_scheduler SOURCES a.cc LINK folio_block_manager)\n",
                "scheduler/a.cc": '#include "base/ids.h"\n',
                "base/CMakeLists.txt": "folio_library(folio_base SOURCES c.cc)\n",
                "block_manager/CMakeLists.txt": "folio_library(folio_block_manager SOURCES b.cc)\n"}
        self.assert_complaint(layering.check_links(tree), "scheduler includes base and does not link it")
        tree["block_manager/CMakeLists.txt"] = "folio_library(folio_block_manager SOURCES b.cc LINK folio_base)\n"
        self.assertEqual(layering.check_links(tree), [])

    def test_generated_headers(self):
        tree = {"server/a.cc": '#include "folio/v1/generation.pb.h"\n', "engine/a.cc": '#include "folio/v1/x.pb.h"\n',
                "server/CMakeLists.txt": "folio_library(folio_server_lib SOURCES a.cc LINK folio_grpc)\n",
                "proto/CMakeLists.txt": "add_library(folio_grpc STATIC ${files})\n"}
        self.assert_complaint(layering.check_includes(tree), "engine must not include proto")
        self.assertEqual(layering.check_links(tree), [])

    def test_header_without_guard(self):
        self.assert_complaint(layering.check_files({"base/a.h": "// #pragma once\n"}), "no #pragma once")

    def test_long_file(self):
        self.assert_complaint(layering.check_files({"base/a.cc": "\n" * 401}), "401 lines")
        self.assertEqual(layering.check_files({"base/a.cc": "\n" * 400}), [])


class Rules(unittest.TestCase):
    def test_the_allowed_edges_have_no_cycle(self):
        self.assertEqual(layering.find_cycle({name: set(module.uses) for name, module in layering.MODULES.items()}), [])

    def test_the_allowed_edges_name_modules(self):
        for name, module in layering.MODULES.items():
            self.assertLessEqual(set(module.uses), set(layering.MODULES), name)


class SourceTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = layering.read_tree(ROOT)

    def check(self, complaints):
        self.assertEqual(complaints, [], "\n" + "\n".join(complaints))

    def test_the_tree_is_there(self):
        self.assertIn("base/check.h", self.tree)
        self.assertIn("tests/layering/layering.py", self.tree)

    def test_includes(self):
        self.check(layering.check_includes(self.tree))

    def test_cycles(self):
        self.check(layering.check_cycles(self.tree))

    def test_links(self):
        self.check(layering.check_links(self.tree))

    def test_files(self):
        self.check(layering.check_files(self.tree))


if __name__ == "__main__":
    unittest.main()
