#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  ParsedOptions parsed;
  std::string printed;
};

Outcome parse(std::vector<const char*> flags, const std::string& executable = "/nowhere/build/bin/folio-server") {
  flags.insert(flags.begin(), "folio-server");
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  Outcome out;
  out.parsed = parse_options(static_cast<int>(flags.size()), flags.data(), executable);
  out.printed = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  return out;
}

TEST(Options, Defaults) {
  const auto options = parse({}).parsed.options;
  ASSERT_TRUE(options);
  EXPECT_EQ(options->host, "127.0.0.1");
  EXPECT_EQ(options->grpc_port, 50051);
  EXPECT_EQ(options->control_listen, "127.0.0.1:50052");
  EXPECT_GE(options->threads, 1);
  EXPECT_EQ(options->device, "cpu");
  EXPECT_FALSE(options->deterministic);
  EXPECT_EQ(options->model, "models/smollm2-135m-q4_1.gguf");
  EXPECT_EQ(options->model_name, "smollm2-135m-q4_1");
  EXPECT_EQ(options->prefix_cache, "on");
  EXPECT_EQ(options->max_batch_tokens, 512);
  EXPECT_EQ(options->target_itl_ms, 100);
  EXPECT_EQ(options->pin_quota_percent, 25);
  EXPECT_EQ(options->write_timeout_s, 60);
  EXPECT_EQ(options->max_connection_age_s, 0);
  EXPECT_EQ(options->tls_cert, "");
  EXPECT_EQ(options->api_key_file, "");
  EXPECT_TRUE(options->pins.empty());
  EXPECT_TRUE(options->tenant_weights.empty());
}

TEST(Options, TheDefaultModelIsFoundBesideTheBuildFolder) {
  const testing::TempFolder folder;
  const std::string model = folder.write("models/smollm2-135m-q4_1.gguf", "x");
  const auto options = parse({}, folder.path("build/bin/folio-server")).parsed.options;
  ASSERT_TRUE(options);
  EXPECT_EQ(options->model, model);
}

TEST(Options, ContradictionsAndBadValuesAreRefusedByName) {
  const struct {
    std::vector<const char*> flags;
    const char* named;
  } cases[] = {
      {{"--kv-blocks", "10", "--kv-memory", "1GiB"}, "--kv-memory"},
      {{"--kv-memory", "lots"}, "--kv-memory"},
      {{"--kv-memory", "0"}, "--kv-memory"},
      {{"--kv-blocks", "0"}, "--kv-blocks"},
      {{"--max-batch-tokens", "0"}, "--max-batch-tokens"},
      {{"--max-num-seqs", "64", "--max-batch-tokens", "32"}, "--max-batch-tokens"},
      {{"--block-size", "24"}, "--block-size"},
      {{"--http-port", "70000"}, "--http-port"},
      {{"--http-port", "on"}, "--http-port"},
      {{"--http-port", "50051"}, "--http-port"},
      {{"--control-listen", "127.0.0.1:8080"}, "--control-listen"},
      {{"--cors-allow-origin", "https://app.example/page"}, "--cors-allow-origin"},
      {{"--cors-allow-origin", "app.example"}, "--cors-allow-origin"},
      {{"--cors-allow-origin", "https://a\r\nX-Evil: 1"}, "--cors-allow-origin"},
      {{"--isa", "sse"}, "--isa"},
      {{"--device", "tpu"}, "--device"},
      {{"--kv-dtype", "int4"}, "--kv-dtype"},
      {{"--grpc-port", "70000"}, "--grpc-port"},
      {{"--control-listen", "50052"}, "--control-listen"},
      {{"--control-listen", "127.0.0.1:50051"}, "--control-listen"},
      {{"--drain-timeout", "-1"}, "--drain-timeout"},
      {{"--target-itl-ms", "-1"}, "--target-itl-ms"},
      {{"--target-itl-ms", "nan"}, "--target-itl-ms"},
      {{"--pin-quota", "101"}, "--pin-quota"},
      {{"--prefix-cache", "maybe"}, "--prefix-cache"},
      {{"--api-key-file", ""}, "--api-key-file"},
      {{"--tls-cert", "", "--tls-key", ""}, "--tls-cert"},
      {{"--write-timeout", "0"}, "--write-timeout"},
      {{"--write-timeout", "nan"}, "--write-timeout"},
      {{"--max-connection-age", "-1"}, "--max-connection-age"},
      {{"--max-connection-age", "0.5"}, "--max-connection-age: is less than a second"},
      {{"--max-connection-age-grace", "nan"}, "--max-connection-age-grace"},
      {{"--tls-cert", "c.pem"}, "--tls-cert: goes with --tls-key, which is missing"},
      {{"--tls-key", "k.pem"}, "--tls-key: goes with --tls-cert, which is missing"},
      {{"--tls-client-ca", "a.pem"}, "--tls-client-ca: goes with --tls-cert and --tls-key, which are missing"},
      {{"--config", "/no/such/file.toml"}, "/no/such/file.toml: config: cannot be read: No such file"},
      {{"--metrics-prefix", ""}, "--metrics-prefix"},
      {{"--metrics-prefix", "9lives_"}, "--metrics-prefix"},
      {{"--metrics-prefix", "a b"}, "--metrics-prefix"},
      {{"--metrics-prefix", "caf\xC3\xA9_"}, "--metrics-prefix"},
      {{"--metrics-prefix", "a2345678901234567890123456789012345678901234567890123456789012345"}, "1 to 64"},
      {{"--no-such-flag"}, "--no-such-flag"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = parse(c.flags);
    EXPECT_FALSE(outcome.parsed.options) << c.named;
    EXPECT_EQ(outcome.parsed.exit_code, 2) << c.named;
    EXPECT_THAT(outcome.printed, HasSubstr(c.named));
  }
}

TEST(Options, TheMetricsPrefixIsWhatANameMayBeginWith) {
  EXPECT_EQ(parse({}).parsed.options->metrics_prefix, "folio_");
  for (const char* prefix : {"vllm:", "_", "Edge2_folio_"}) {
    const auto options = parse({"--metrics-prefix", prefix}).parsed.options;
    ASSERT_TRUE(options) << prefix;
    EXPECT_EQ(options->metrics_prefix, prefix);
  }
}

TEST(Options, HelpAndVersionEndWithSuccess) {
  for (const char* flag : {"--help", "--version"}) {
    const Outcome outcome = parse({flag});
    EXPECT_FALSE(outcome.parsed.options);
    EXPECT_EQ(outcome.parsed.exit_code, 0);
    EXPECT_THAT(outcome.printed, HasSubstr("folio-server"));
  }
}

TEST(Options, EveryFlagIsDescribed) {
  const auto options = parse({"--kv-memory", "2GiB", "--check-invariants"}).parsed.options;
  ASSERT_TRUE(options);
  const auto described = describe(*options);
  EXPECT_EQ(described.at("kv-memory"), std::to_string(2ULL << 30U));
  EXPECT_EQ(described.at("check-invariants"), "on");
  const std::string help = parse({"--help"}).printed;
  for (const auto& [flag, value] : described) EXPECT_THAT(help, HasSubstr("--" + flag));
}

TEST(ParseBytes, WholeNumbersWithBinaryUnits) {
  EXPECT_EQ(parse_bytes("1073741824"), 1ULL << 30U);
  EXPECT_EQ(parse_bytes("3KiB"), 3U << 10U);
  EXPECT_EQ(parse_bytes("512MiB"), 512ULL << 20U);
  for (const char* bad : {"", "GiB", "-1", "1.5GiB", "1GB", "99999999999999999999", "99999999999GiB", "0"}) {
    EXPECT_THROW(parse_bytes(bad), std::invalid_argument) << bad;
  }
}

}  // namespace
}  // namespace folio
