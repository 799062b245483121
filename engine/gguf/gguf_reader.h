// The parse of a GGUF file's header, behind GgufFile's constructor.
#pragma once
#include <cstring>
#include <string>
#include <string_view>

#include "engine/gguf/gguf_file.h"

namespace folio {

// A cursor over the file's bytes. Nothing that was read is believed before it was held against the bytes that remain,
// so work and memory are bounded by the file's own size.
class GgufFile::Reader {
 public:
  explicit Reader(GgufFile& file) : file_(file), bytes_(file.file_->bytes()) {}
  void read();

 private:
  void read_magic_and_version();
  void read_metadata(std::uint64_t count);
  GgufValue read_value(GgufType type);
  GgufArray read_array();
  void skip_nested(GgufType type, std::uint64_t count, int depth);
  void take_alignment();
  void read_tensors(std::uint64_t count);
  GgufTensor read_tensor();
  void read_shape(GgufTensor& tensor);
  void place_tensors();
  void check_overlaps();

  template <class T>
  T number(std::string_view what);
  GgufType value_type(std::string_view what);
  // A count of things that take at least `min_bytes` each.
  std::uint64_t counted(std::string_view what, std::uint64_t min_bytes);
  std::string_view string(std::string_view what, std::uint64_t max_bytes);
  std::uint64_t remaining() const { return bytes_.size() - at_; }
  const char* here() const { return reinterpret_cast<const char*>(bytes_.data()) + at_; }

  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const;

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  // What is being read, for messages: "key" or "tensor", and its name.
  std::string_view subject_ = "header";
  std::string_view name_;
  struct Placed {
    std::uint64_t record;  // where the file describes it
    std::uint64_t offset;  // of its data, from the data section's start
    std::uint64_t size;
  };
  std::vector<Placed> placed_;  // one for each tensor
};

// "string", "array" ...
std::string_view gguf_type_name(GgufType type);
// Bytes of one number or bool; 0 for strings and arrays.
std::uint64_t gguf_type_size(GgufType type);

}  // namespace folio
