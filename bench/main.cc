// folio-bench: the engine without a network.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench/memory.h"
#include "bench/prefix.h"
#include "bench/schedule.h"
#include "bench/stall.h"
#include "bench/throughput.h"

int main(int argc, char** argv) {
  using namespace folio::bench;
  CLI::App app("folio-bench: measures the engine without a network");
  app.require_subcommand(1);
  ThroughputOptions options;
  std::string cases = "1,128,64;1,512,1;8,128,64;32,128,64;64,128,64;1,2048,32;8,2048,32";
  CLI::App* throughput = app.add_subcommand("throughput", "prefill and decode in tokens per second");
  throughput->add_option("--model", options.model_path, "GGUF file")->required();
  throughput->add_option("--cases", cases, "B,PP,TG;... sequences, prompt and output tokens of each")
      ->capture_default_str();
  throughput->add_option("--threads", options.model.num_threads, "0: the cores this process may use")
      ->check(CLI::Range(0, 1024));
  throughput->add_option("--isa", options.model.isa, "auto, avx512, avx2, scalar")->capture_default_str();
  throughput->add_option("--kv-dtype", options.model.kv_dtype, "f16, bf16, int8, f32")->capture_default_str();
  throughput->add_option("--block-size", options.model.block_size)->capture_default_str();
  throughput->add_option("--max-batch-tokens", options.max_batch_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  throughput->add_option("--repeat", options.repeat, "runs of each kind; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  throughput->add_flag("--json", options.json, "one JSON object a line");
  throughput->callback([&] {
    options.cases = parse_cases(cases);
    run_throughput(options);
  });
  add_prefix_command(app);
  add_memory_command(app);
  add_stall_command(app);
  add_schedule_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return app.exit(end) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "folio-bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
