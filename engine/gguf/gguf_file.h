// Reader of GGUF version 2 and 3 over a memory map. Every count, length, offset and size is checked against the file
// before it is believed: a broken file gives one GgufError that names the file, the thing and the byte offset, at once
// and without a large allocation. Immutable after construction: any thread may read. Source: the format's
// specification, docs/gguf.md in the ggml repository.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "engine/gguf/tensor_type.h"

namespace folio {

class GgufError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct GgufTensor {
  std::string_view name;
  TensorType type;
  std::vector<std::uint64_t> shape;  // as in the file: shape[0] is the row length (contiguous), 1 to 4 dimensions
  std::span<const std::byte> data;   // inside the map, at least 8-byte aligned
  std::uint64_t row_length() const { return shape[0]; }
  std::uint64_t num_rows() const;  // product of the other dimensions
};

// A metadata value. Strings and arrays are views into the map; an array of strings is indexed once, when opened.
enum class GgufType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

struct GgufArray {
  GgufType element_type;
  std::uint64_t size = 0;
  std::span<const std::byte> bytes;       // of numbers: packed little-endian, may be unaligned. Nested arrays: raw
  std::vector<std::string_view> strings;  // filled when element_type is kString
  std::optional<std::int64_t> int_at(std::uint64_t i) const;  // none if not an integer or bool array
  std::optional<double> float_at(std::uint64_t i) const;      // none if not a number
};

using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);  // throws GgufError; std::runtime_error from MappedFile

  const std::string& path() const { return file_->path(); }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }

  bool has(std::string_view key) const { return metadata_.contains(key); }
  const std::vector<std::string_view>& keys() const { return keys_; }  // file order

  // Typed look-ups: none when the key is absent; GgufError naming file, key, found and wanted type when it has another
  // type or does not fit. Integers of any width and sign are taken where an integer is asked, if the value fits.
  std::optional<std::uint64_t> find_uint(std::string_view key) const;
  std::optional<std::int64_t> find_int(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;  // floats and integers
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  const GgufArray* find_array(std::string_view key) const;  // null when absent
  // The same, but absent is an error too.
  std::uint64_t get_uint(std::string_view key) const;
  double get_float(std::string_view key) const;
  std::string_view get_string(std::string_view key) const;
  const GgufArray& get_array(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;  // null when absent
  const GgufTensor& get_tensor(std::string_view name) const;   // GgufError "missing tensor NAME"

  // The tensor's pages are not needed any more (it was repacked); data stays readable.
  void give_back(const GgufTensor& tensor) const;

  [[noreturn]] void fail(const std::string& what) const;  // throws GgufError "PATH: what"

 private:
  class Reader;  // gguf_reader.h
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void fail_missing(std::string_view key) const;

  std::unique_ptr<MappedFile> file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

}  // namespace folio
