// What fuzz targets share: their one function, a cursor over its input, and how a fault is told.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace folio {

// A difference that no sanitizer sees. Ends the run; the input replays with `TARGET FILE`.
inline void fuzz_require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fault: %s\n", what.c_str());
  std::abort();
}

// Takes choices from the input; past its end everything is 0.
class FuzzBytes {
 public:
  FuzzBytes(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::uint32_t below(std::uint32_t limit) { return byte() % limit; }  // limit of at most 256
  bool flag() { return byte() % 2 == 1; }
  std::string string(std::size_t size) {
    std::string out(size, '\0');
    for (char& c : out) c = static_cast<char>(byte());
    return out;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace folio
