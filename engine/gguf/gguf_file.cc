#include "engine/gguf/gguf_file.h"

#include <cstring>
#include <utility>

#include "engine/gguf/gguf_reader.h"
#include "engine/gguf/printable.h"

namespace folio {
namespace {

template <class T>
T load_element(std::span<const std::byte> bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

// "the string "abc"", "-5": what a message says was found.
struct Describe {
  std::string operator()(std::uint64_t v) const { return std::to_string(v); }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return "the float " + std::to_string(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::string_view v) const { return "the string \"" + printable(v, 40) + '"'; }
  std::string operator()(const GgufArray& v) const {
    return "an array of " + std::to_string(v.size) + ' ' + std::string(gguf_type_name(v.element_type)) + " values";
  }
};

}  // namespace

std::uint64_t GgufTensor::num_rows() const {
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::optional<std::int64_t> GgufArray::int_at(std::uint64_t i) const {
  if (i >= size) return std::nullopt;
  switch (element_type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return load_element<std::uint8_t>(bytes, i);
    case GgufType::kInt8:
      return load_element<std::int8_t>(bytes, i);
    case GgufType::kUint16:
      return load_element<std::uint16_t>(bytes, i);
    case GgufType::kInt16:
      return load_element<std::int16_t>(bytes, i);
    case GgufType::kUint32:
      return load_element<std::uint32_t>(bytes, i);
    case GgufType::kInt32:
      return load_element<std::int32_t>(bytes, i);
    case GgufType::kInt64:
      return load_element<std::int64_t>(bytes, i);
    case GgufType::kUint64: {
      const auto value = load_element<std::uint64_t>(bytes, i);
      if (!std::in_range<std::int64_t>(value)) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    case GgufType::kFloat32:
    case GgufType::kFloat64:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return std::nullopt;
}

std::optional<double> GgufArray::float_at(std::uint64_t i) const {
  if (i >= size) return std::nullopt;
  if (element_type == GgufType::kFloat32) return load_element<float>(bytes, i);
  if (element_type == GgufType::kFloat64) return load_element<double>(bytes, i);
  if (element_type == GgufType::kUint64) return static_cast<double>(load_element<std::uint64_t>(bytes, i));
  if (element_type == GgufType::kBool) return std::nullopt;
  if (const std::optional<std::int64_t> value = int_at(i)) return static_cast<double>(*value);
  return std::nullopt;
}

void GgufFile::fail(const std::string& what) const {
  throw GgufError(path() + ": " + what);
}

void GgufFile::fail_type(std::string_view key, std::string_view wanted) const {
  fail("key \"" + printable(key) + "\": is " + std::visit(Describe{}, metadata_.at(key)) + ", expected " +
       std::string(wanted));
}

void GgufFile::fail_missing(std::string_view key) const {
  fail("key \"" + printable(key) + "\" is missing");
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> GgufFile::find_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* as_uint = std::get_if<std::uint64_t>(value)) return *as_uint;
  const auto* as_int = std::get_if<std::int64_t>(value);
  if (as_int == nullptr || *as_int < 0) fail_type(key, "an integer of at least 0");
  return static_cast<std::uint64_t>(*as_int);
}

std::optional<std::int64_t> GgufFile::find_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* as_int = std::get_if<std::int64_t>(value)) return *as_int;
  const auto* as_uint = std::get_if<std::uint64_t>(value);
  if (as_uint == nullptr || !std::in_range<std::int64_t>(*as_uint)) fail_type(key, "a signed 64-bit integer");
  return static_cast<std::int64_t>(*as_uint);
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* as_double = std::get_if<double>(value)) return *as_double;
  if (const auto* as_uint = std::get_if<std::uint64_t>(value)) return static_cast<double>(*as_uint);
  if (const auto* as_int = std::get_if<std::int64_t>(value)) return static_cast<double>(*as_int);
  fail_type(key, "a number");
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* as_bool = std::get_if<bool>(value)) return *as_bool;
  fail_type(key, "a bool");
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* as_string = std::get_if<std::string_view>(value)) return *as_string;
  fail_type(key, "a string");
}

const GgufArray* GgufFile::find_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* as_array = std::get_if<GgufArray>(value)) return as_array;
  fail_type(key, "an array");
}

std::uint64_t GgufFile::get_uint(std::string_view key) const {
  if (const auto value = find_uint(key)) return *value;
  fail_missing(key);
}

double GgufFile::get_float(std::string_view key) const {
  if (const auto value = find_float(key)) return *value;
  fail_missing(key);
}

std::string_view GgufFile::get_string(std::string_view key) const {
  if (const auto value = find_string(key)) return *value;
  fail_missing(key);
}

const GgufArray& GgufFile::get_array(std::string_view key) const {
  if (const GgufArray* value = find_array(key)) return *value;
  fail_missing(key);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::get_tensor(std::string_view name) const {
  if (const GgufTensor* tensor = find_tensor(name)) return *tensor;
  fail("missing tensor \"" + printable(name) + '"');
}

void GgufFile::give_back(const GgufTensor& tensor) const {
  const auto offset = static_cast<std::size_t>(tensor.data.data() - file_->bytes().data());
  file_->give_back(offset, tensor.data.size());
}

}  // namespace folio
