// --config: what a file may say, that the command line wins, and that every fault is named with its file, line and key.
#include "server/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "server/options.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  ParsedOptions parsed;
  std::string printed;
};

class ConfigFileTest : public ::testing::Test {
 protected:
  Outcome parse(const std::string& text, std::vector<std::string> flags = {}) {
    path_ = folder_.write("folio.toml", text);
    flags.insert(flags.begin(), {"folio-server", "--config", path_});
    std::vector<const char*> argv;
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    Outcome out;
    out.parsed = parse_options(static_cast<int>(argv.size()), argv.data(), "/nowhere/build/bin/folio-server");
    out.printed = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    return out;
  }
  ServerOptions options(const std::string& text, std::vector<std::string> flags = {}) {
    const Outcome outcome = parse(text, std::move(flags));
    EXPECT_TRUE(outcome.parsed.options) << outcome.printed;
    return outcome.parsed.options.value_or(ServerOptions());
  }

  const testing::TempFolder folder_;
  std::string path_;
};

constexpr const char* kWhole = R"(# every kind of value
model = "models/x.gguf"
grpc-port = 0
kv-memory = "2GiB"
block-size = 32
target-itl-ms = 50        # a number without a fraction is one, too
drain-timeout = 2.5
prefix-cache = "on"
pin-quota = 40
check-invariants = true
log-format = 'json'

[tenants.gold]
weight = 3
[tenants."two words"]
weight = 0.25
[tenants.""]
weight = 1

[[pin]]
system = """
You are brief.
"""
[[pin]]
text = "<|im_start|>x"
salt = "s"
ms = 60000
)";

TEST_F(ConfigFileTest, EveryKindOfValue) {
  const ServerOptions o = options(kWhole);
  EXPECT_EQ(o.model, "models/x.gguf");
  EXPECT_EQ(o.model_name, "x");
  EXPECT_EQ(o.grpc_port, 0);
  EXPECT_EQ(o.kv_memory_bytes, 2ULL << 30U);
  EXPECT_EQ(o.block_size, 32);
  EXPECT_EQ(o.target_itl_ms, 50);
  EXPECT_EQ(o.drain_timeout_s, 2.5);
  EXPECT_EQ(o.prefix_cache, "on");
  EXPECT_EQ(o.pin_quota_percent, 40);
  EXPECT_TRUE(o.check_invariants);
  EXPECT_EQ(o.log_format, "json");
  const std::map<std::string, double> weights{{"gold", 3}, {"two words", 0.25}, {"", 1}};
  EXPECT_EQ(o.tenant_weights, weights);
  ASSERT_EQ(o.pins.size(), 2U);
  EXPECT_EQ(o.pins[0].system, "You are brief.\n");
  EXPECT_EQ(o.pins[0].text, "");
  EXPECT_EQ(o.pins[0].ms, CacheParams::kPinForever);
  EXPECT_EQ(o.pins[0].where, path_ + ":20: pin");
  EXPECT_EQ(o.pins[1].text, "<|im_start|>x");
  EXPECT_EQ(o.pins[1].salt, "s");
  EXPECT_EQ(o.pins[1].ms, 60000);
  EXPECT_EQ(describe(o).at("config"), path_);
}

TEST_F(ConfigFileTest, AnEmptyFileChangesNothing) {
  const ServerOptions o = options("");
  const std::map<std::string, std::string> plain = describe(ServerOptions());
  for (const auto& [flag, value] : describe(o)) {
    if (flag == "config" || flag == "model" || flag == "model-name" || flag == "threads") continue;
    EXPECT_EQ(value, plain.at(flag)) << flag;
  }
}

TEST_F(ConfigFileTest, TheCommandLineWins) {
  const std::string text = "max-queue = 5\ngrpc-port = 1\ncheck-invariants = false\nkv-memory = \"1GiB\"\n";
  EXPECT_EQ(options(text).max_queue, 5);
  const ServerOptions o =
      options(text, {"--max-queue", "1024", "--check-invariants", "--kv-blocks", "10", "--grpc-port", "2"});
  EXPECT_EQ(o.max_queue, 1024);  // although it is the default
  EXPECT_EQ(o.grpc_port, 2);
  EXPECT_TRUE(o.check_invariants);
  EXPECT_EQ(o.kv_blocks, 10);
  EXPECT_EQ(o.kv_memory_bytes, 0U);  // another way to say the same: replaced
  EXPECT_EQ(options("kv-blocks = 10\n", {"--kv-memory", "1GiB"}).kv_blocks, 0);
}

TEST_F(ConfigFileTest, SizesAreStringsOrBytes) {
  EXPECT_EQ(options("kv-memory = 1_048_576\n").kv_memory_bytes, 1U << 20U);
  EXPECT_EQ(options("kv-memory = \"3MiB\"\n").kv_memory_bytes, 3U << 20U);
}

struct BadFile {
  const char* text;
  int line;
  const char* message;  // what follows the place
};

// The file is one fault alone; the message begins with FILE:LINE and names the key.
constexpr BadFile kBadFiles[] = {
    // The form.
    {"max-queue = \n", 1, "not TOML: "},
    {"a = 1\na = 2\n", 2, "not TOML: "},
    {"model = \"\xFF\"\n", 1, "not TOML: "},
    // Keys.
    {"\nmax_queue = 5\n", 2, "unknown key \"max_queue\""},
    {"help = true\n", 1, "unknown key \"help\""},
    {"version = true\n", 1, "unknown key \"version\""},
    {"\"\" = 1\n", 1, "unknown key \"\""},
    {"[server]\nmax-queue = 5\n", 1, "server: expected one value, not a table"},
    {"# x\nconfig = \"other.toml\"\n", 2, "config: a file cannot name another"},
    {"tenant = \"a\"\n", 1, "unknown key \"tenant\""},
    // Types.
    {"max-queue = \"5\"\n", 1, "max-queue: expected an integer"},
    {"max-queue = 5.5\n", 1, "max-queue: expected an integer"},
    {"max-queue = [5]\n", 1, "max-queue: expected one value, not an array"},
    {"max-queue = 2026-11-30\n", 1, "max-queue: expected one value, not a date or time"},
    {"drain-timeout = \"5\"\n", 1, "drain-timeout: expected a number"},
    {"model = 5\n", 1, "model: expected a string"},
    {"prefix-cache = true\n", 1, "prefix-cache: expected a string"},
    {"check-invariants = \"on\"\n", 1, "check-invariants: expected true or false"},
    {"check-invariants = 1\n", 1, "check-invariants: expected true or false"},
    {"kv-memory = 1.5\n", 1, "kv-memory: expected a string as \"2GiB\", or an integer of bytes"},
    // Values.
    {"grpc-port = 70000\n", 1, "grpc-port: "},
    {"kv-blocks = 0\n", 1, "kv-blocks: "},
    {"max-queue = 99999999999\n", 1, "max-queue"},
    {"block-size = 24\n", 1, "block-size: "},
    {"prefix-cache = \"yes\"\n", 1, "prefix-cache: "},
    {"target-itl-ms = -1\n", 1, "target-itl-ms: "},
    {"target-itl-ms = inf\n", 1, "target-itl-ms: "},
    {"drain-timeout = nan\n", 1, "drain-timeout: is not a number of seconds"},
    {"pin-quota = 101\n", 1, "pin-quota: "},
    {"\napi-key-file = \"\"\n", 2, "api-key-file: is empty"},
    {"\n\nkv-memory = \"2GB\"\n", 3, "kv-memory: '2GB' is not a size"},
    {"kv-memory = -5\n", 1, "kv-memory: '-5' is not a size"},
    // Contradictions.
    {"kv-memory = \"2GiB\"\nkv-blocks = 10\n", 2, "kv-blocks: not together with kv-memory"},
    {"kv-blocks = 10\nkv-memory = \"2GiB\"\n", 2, "kv-memory: not together with kv-blocks"},
    {"max-batch-tokens = 32\nmax-num-seqs = 64\n", 2, "max-num-seqs: 64 is above --max-batch-tokens 32"},
    {"control-listen = \"here\"\n", 1, "control-listen: here is not host:port or off"},
    {"prefix-cache = \"off\"\n[[pin]]\ntext = \"x\"\n", 1, "prefix-cache: off leaves nothing to hold for "},
    {"pin-quota = 0\n[[pin]]\ntext = \"x\"\n", 1, "pin-quota: 0 leaves no room for "},
    // Tenants.
    {"tenants = 3\n", 1, "tenants: expected a table of tenants, not an integer"},
    {"[tenants]\na = 3\n", 2, "tenants.\"a\": expected a table with weight, not an integer"},
    {"[tenants.a]\n", 1, "tenants.\"a\": weight is missing"},
    {"[tenants.a]\nweight = 0\n", 2, "tenants.\"a\".weight: 0 is not in [1e-06, 1e+06]"},
    {"[tenants.a]\nweight = -1.5\n", 2, "tenants.\"a\".weight: -1.5 is not in [1e-06, 1e+06]"},
    {"[tenants.a]\nweight = inf\n", 2, "tenants.\"a\".weight: inf is not in [1e-06, 1e+06]"},
    {"[tenants.a]\nweight = nan\n", 2, "tenants.\"a\".weight: nan is not in [1e-06, 1e+06]"},
    {"[tenants.a]\nweight = \"3\"\n", 2, "tenants.\"a\".weight: expected a number, not a string"},
    {"[tenants.a]\nweight = 3\nwait = 4\n", 3, "tenants.\"a\": unknown key \"wait\""},
    // Pins.
    {"pin = \"x\"\n", 1, "pin: expected tables, each begun by [[pin]], not a string"},
    {"[pin]\ntext = \"x\"\n", 1, "pin: expected tables, each begun by [[pin]], not a table"},
    {"pin = [1]\n", 1, "pin: expected tables, each begun by [[pin]], not an integer"},
    {"\n[[pin]]\n", 2, "pin: exactly one of text and system is needed"},
    {"[[pin]]\ntext = \"a\"\n[[pin]]\ntext = \"a\"\nsystem = \"b\"\n", 3, "pin: exactly one of text and system"},
    {"[[pin]]\ntext = \"\"\n", 2, "pin.text: empty"},
    {"[[pin]]\nsystem = \"\"\n", 2, "pin.system: empty"},
    {"[[pin]]\ntext = 5\n", 2, "pin.text: expected a string, not an integer"},
    {"[[pin]]\ntext = \"a\"\nsalt = true\n", 3, "pin.salt: expected a string, not a boolean"},
    {"[[pin]]\ntext = \"a\"\ntenant = 3\n", 3, "pin.tenant: expected a string, not an integer"},
    {"[[pin]]\ntext = \"a\"\nms = 0\n", 3, "pin.ms: 0 is not in [1, 4294967295]"},
    {"[[pin]]\ntext = \"a\"\nms = 1.5\n", 3, "pin.ms: expected an integer, not a number with a fraction"},
    {"[[pin]]\ntext = \"a\"\nfor = 5\n", 3, "pin: unknown key \"for\""},
};

TEST_F(ConfigFileTest, EveryFaultIsNamedWithFileLineAndKey) {
  for (const BadFile& bad : kBadFiles) {
    const Outcome outcome = parse(bad.text);
    EXPECT_FALSE(outcome.parsed.options) << bad.text;
    EXPECT_EQ(outcome.parsed.exit_code, 2) << bad.text;
    const std::string begin = path_ + ":" + std::to_string(bad.line) + ": " + bad.message;
    EXPECT_EQ(outcome.printed.substr(0, begin.size()), begin) << outcome.printed;
  }
}

TEST_F(ConfigFileTest, LongNamesAndSalts) {
  const std::string name(257, 'x');
  EXPECT_THAT(parse("[tenants." + name + "]\nweight = 1\n").printed, HasSubstr("a name has at most 256 bytes"));
  EXPECT_THAT(parse("[[pin]]\ntext = \"a\"\nsalt = \"" + name + "\"\n").printed,
              HasSubstr(":3: pin.salt: 257 bytes, at most 256 are taken"));
  EXPECT_THAT(parse("[[pin]]\ntext = \"a\"\ntenant = \"" + name + "\"\n").printed,
              HasSubstr(":3: pin.tenant: 257 bytes, at most 256 are taken"));
}

// Said to be wrong where it is wrong: a contradiction that the command line made is the command line's.
TEST_F(ConfigFileTest, TheCommandLinesContradictionIsNamedAsItsOwn) {
  const Outcome outcome = parse("max-batch-tokens = 32\nmax-num-seqs = 8\n", {"--max-num-seqs", "64"});
  EXPECT_EQ(outcome.parsed.exit_code, 2);
  EXPECT_THAT(outcome.printed, HasSubstr("--max-num-seqs: 64 is above --max-batch-tokens 32"));
  EXPECT_THAT(outcome.printed, Not(HasSubstr(path_)));
}

// Parsing what is nested deeper than this would overflow the stack.
TEST_F(ConfigFileTest, HostileFilesAreRefusedBeforeTheyAreParsed) {
  std::string deep = "a";
  for (int i = 0; i < 60'000; ++i) deep += ".a";
  for (const std::string& text : {deep + " = 1\n", "[" + deep + "]\n", "x = { " + deep + " = 1 }\n"}) {
    EXPECT_THAT(parse("max-queue = 5\n" + text, {}).printed, HasSubstr(":2: config: a line with more than 1000 dots"));
  }
  EXPECT_THAT(parse("# " + std::string(1 << 20, 'x'), {}).printed, HasSubstr("config: is larger than 1048576 bytes"));
  EXPECT_THAT(parse("model = \"a.gguf\\u0000b\"\n", {}).printed, HasSubstr(":1: model: a NUL byte in it"));
  EXPECT_THAT(parse("\"a\\nb\" = 1\n", {}).printed, HasSubstr("unknown key \"a?b\""));
  EXPECT_THAT(parse("[tenants.a]\nweight = 9007199254740993\n", {}).printed,
              HasSubstr(":2: tenants.\"a\".weight: 9.0072e+15 is not in [1e-06, 1e+06]"));
  EXPECT_THROW(read_config_file("/dev/zero"), ConfigError);
}

TEST_F(ConfigFileTest, AFolderIsNoFile) {
  EXPECT_THROW(read_config_file(folder_.path(".")), ConfigError);
}

}  // namespace
}  // namespace folio
