#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace folio::testing {
namespace {

std::uint64_t aligned(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

std::string GgufWriter::string(std::string_view value) {
  return raw(std::uint64_t{value.size()}) + std::string(value);
}

std::string GgufWriter::array(GgufType element_type, std::uint64_t count, std::string_view elements) {
  return raw(element_type) + raw(count) + std::string(elements);
}

void GgufWriter::add(std::string key, GgufType type, std::string value) {
  pairs_.push_back({std::move(key), type, std::move(value)});
}

void GgufWriter::add_string_array(std::string key, std::span<const std::string> values) {
  std::string elements;
  for (const std::string& value : values) elements += string(value);
  add(std::move(key), GgufType::kArray, array(GgufType::kString, values.size(), elements));
}

void GgufWriter::add_float32_array(std::string key, std::span<const float> values) {
  add(std::move(key), GgufType::kArray, array(GgufType::kFloat32, values.size(), raw(values)));
}

void GgufWriter::add_int32_array(std::string key, std::span<const std::int32_t> values) {
  add(std::move(key), GgufType::kArray, array(GgufType::kInt32, values.size(), raw(values)));
}

void GgufWriter::set(const std::string& key, GgufType type, std::string value) {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) { return pair.key == key; });
  if (found == pairs_.end()) return add(key, type, std::move(value));
  found->type = type;
  found->value = std::move(value);
}

void GgufWriter::erase(const std::string& key) {
  std::erase_if(pairs_, [&](const Pair& pair) { return pair.key == key; });
}

TensorRecord& GgufWriter::add_tensor(std::string name, std::vector<std::uint64_t> shape, TensorType type,
                                     std::string data) {
  tensors_.push_back(
      {std::move(name), std::move(shape), static_cast<std::uint32_t>(type), std::move(data), {}, {}, {}});
  return tensors_.back();
}

TensorRecord& GgufWriter::add_f32_tensor(std::string name, std::vector<std::uint64_t> shape,
                                         std::span<const float> values) {
  return add_tensor(std::move(name), std::move(shape), TensorType::kF32, raw(values));
}

TensorRecord& GgufWriter::tensor(const std::string& name) {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorRecord& tensor) { return tensor.name == name; });
  if (found == tensors_.end()) throw std::out_of_range("no tensor " + name);
  return *found;
}

std::string GgufWriter::bytes() const {
  std::string out = magic + raw(version) + raw(claimed_num_tensors.value_or(tensors_.size())) +
                    raw(claimed_num_keys.value_or(pairs_.size()));
  for (const Pair& pair : pairs_) out += string(pair.key) + raw(pair.type) + pair.value;
  std::uint64_t offset = 0;
  for (const TensorRecord& tensor : tensors_) {
    out += raw(tensor.claimed_name_length.value_or(tensor.name.size())) + tensor.name;
    out += raw(tensor.claimed_num_dims.value_or(static_cast<std::uint32_t>(tensor.shape.size())));
    for (const std::uint64_t dim : tensor.shape) out += raw(dim);
    out += raw(tensor.type) + raw(tensor.claimed_offset.value_or(offset));
    offset += aligned(tensor.data.size(), alignment);
  }
  for (const TensorRecord& tensor : tensors_) {
    out.resize(aligned(out.size(), alignment), '\0');
    out += tensor.data;
  }
  return out;
}

}  // namespace folio::testing
