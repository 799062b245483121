// Writes small GGUF files for tests: right ones (tiny models) and ones that are wrong in one chosen field.
//
//   GgufWriter writer;
//   writer.add_string("general.architecture", "llama");
//   writer.add_uint32("llama.block_count", 2);
//   writer.add_f32_tensor("output_norm.weight", {64}, gains);
//   const GgufFile file(folder.write("tiny.gguf", writer.bytes()));
//
// `set` replaces a value in its place, `tensor(name)` gives a record to change, and the public fields set what the
// header says of the file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/gguf/tensor_type.h"

namespace folio::testing {

// The bytes of a plain value as the file holds them.
template <class T>
std::string raw(T value) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
std::string raw(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

struct TensorRecord {
  std::string name;
  std::vector<std::uint64_t> shape;  // shape[0] is the row length
  std::uint32_t type = 0;
  std::string data;
  // What the record says, where it differs from the truth.
  std::optional<std::uint64_t> claimed_name_length;
  std::optional<std::uint32_t> claimed_num_dims;
  std::optional<std::uint64_t> claimed_offset;
};

class GgufWriter {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> claimed_num_keys;
  std::optional<std::uint64_t> claimed_num_tensors;
  std::uint64_t alignment = 32;  // used for the layout; say it in "general.alignment" when it is another

  // Any value: `value` is its bytes in the file. Keys may be given twice (a duplicate in the file).
  void add(std::string key, GgufType type, std::string value);
  void add_uint32(std::string key, std::uint32_t value) { add(std::move(key), GgufType::kUint32, raw(value)); }
  void add_int32(std::string key, std::int32_t value) { add(std::move(key), GgufType::kInt32, raw(value)); }
  void add_uint64(std::string key, std::uint64_t value) { add(std::move(key), GgufType::kUint64, raw(value)); }
  void add_float32(std::string key, float value) { add(std::move(key), GgufType::kFloat32, raw(value)); }
  void add_bool(std::string key, bool value) { add(std::move(key), GgufType::kBool, raw(value)); }
  void add_string(std::string key, std::string_view value) { add(std::move(key), GgufType::kString, string(value)); }
  void add_string_array(std::string key, std::span<const std::string> values);
  void add_float32_array(std::string key, std::span<const float> values);
  void add_int32_array(std::string key, std::span<const std::int32_t> values);

  // Replaces the value of a key that is there, or adds it; `erase` takes it out.
  void set(const std::string& key, GgufType type, std::string value);
  void erase(const std::string& key);

  TensorRecord& add_tensor(std::string name, std::vector<std::uint64_t> shape, TensorType type, std::string data);
  TensorRecord& add_f32_tensor(std::string name, std::vector<std::uint64_t> shape, std::span<const float> values);
  TensorRecord& tensor(const std::string& name);  // the first of that name; throws std::out_of_range

  std::string bytes() const;

  // Value bytes of a string and of an array ("length" + bytes; element type + count + elements).
  static std::string string(std::string_view value);
  static std::string array(GgufType element_type, std::uint64_t count, std::string_view elements);

 private:
  struct Pair {
    std::string key;
    GgufType type;
    std::string value;
  };
  std::vector<Pair> pairs_;
  std::vector<TensorRecord> tensors_;
};

}  // namespace folio::testing
