// A fuzz target's own function on its corpus, on seeded mutations of it and on random bytes, in every build: so that it
// cannot rot. FOLIO_FUZZ_CORPUS is the corpus's folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace folio {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const Bytes* running = nullptr;  // told when the target aborts: it replays with `NAME_fuzz FILE`

void tell_input(int) {
  for (const std::uint8_t byte : *running) std::fprintf(stderr, "\\x%02X", byte);
  std::fprintf(stderr, "\n");
}

void run(const Bytes& bytes) {
  running = &bytes;
  std::signal(SIGABRT, tell_input);
  EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
}

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(FOLIO_FUZZ_CORPUS)) paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// One to four changes: a byte, a bit, a number at an edge, a cut, a piece of another input put in or taken out.
Bytes mutated(Bytes bytes, const Bytes& other, std::mt19937_64& random) {
  constexpr std::uint8_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF};
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1U << below(8)));
        break;
      case 2:
        bytes[at] = kEdges[below(std::size(kEdges))];
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(place, place + static_cast<std::ptrdiff_t>(1 + below(bytes.size() - at)));
        break;
      default:
        if (other.empty()) break;
        const auto from = other.begin() + static_cast<std::ptrdiff_t>(below(other.size()));
        bytes.insert(place, from,
                     from + static_cast<std::ptrdiff_t>(below(static_cast<std::size_t>(other.end() - from)) + 1));
    }
  }
  return bytes;
}

TEST(Fuzz, TheCorpusIsWithoutAFault) {
  ASSERT_GE(corpus().size(), 8U);
  for (const auto& path : corpus()) {
    SCOPED_TRACE(path.string());
    const Bytes bytes = read(path);
    ASSERT_FALSE(bytes.empty());
    run(bytes);
  }
}

TEST(Fuzz, MutationsOfTheCorpusAreWithoutAFault) {
  std::vector<Bytes> inputs;
  for (const auto& path : corpus()) inputs.push_back(read(path));
  std::mt19937_64 random(2);
  for (int round = 0; round < 5000; ++round) {
    const Bytes bytes = mutated(inputs[random() % inputs.size()], inputs[random() % inputs.size()], random);
    run(bytes);
  }
}

TEST(Fuzz, RandomBytesOfAnyLengthAreWithoutAFault) {
  std::mt19937_64 random(1);
  for (std::size_t size = 0; size < 1000; ++size) {
    Bytes bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    run(bytes);
  }
}

}  // namespace
}  // namespace folio
