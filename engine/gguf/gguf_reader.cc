#include "engine/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "engine/gguf/printable.h"

namespace folio {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read in the file's order, little-endian");

constexpr std::uint64_t kMaxKeyBytes = 65'535;
constexpr std::uint64_t kMaxTensorNameBytes = 128;  // the format says 64; some writers go to 127
constexpr std::uint64_t kMinAlignment = 8;
constexpr std::uint64_t kMaxAlignment = 1U << 20;
constexpr int kMaxArrayDepth = 4;
constexpr std::uint32_t kMaxDims = 4;

// The least that a record takes: length and one byte of the name, type, value; name, dimensions, type, offset.
constexpr std::uint64_t kMinKeyRecord = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorRecord = 8 + 1 + 4 + 8 + 4 + 8;

// The least bytes of one value in the file.
std::uint64_t min_value_bytes(GgufType type) {
  if (type == GgufType::kString) return 8;
  if (type == GgufType::kArray) return 12;
  return gguf_type_size(type);
}

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                         "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<std::uint32_t>(type)];
}

std::uint64_t gguf_type_size(GgufType type) {
  constexpr std::uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<std::uint32_t>(type)];
}

GgufFile::GgufFile(const std::string& path) : file_(std::make_unique<MappedFile>(path)) {
  Reader(*this).read();
}

void GgufFile::Reader::fail(std::uint64_t offset, const std::string& what) const {
  std::string subject(subject_);
  if (!name_.empty()) subject += " \"" + printable(name_) + '"';
  file_.fail(subject + ": " + what + " (at byte " + text(offset) + ')');
}

template <class T>
T GgufFile::Reader::number(std::string_view what) {
  if (remaining() < sizeof(T)) fail(at_, "the file ends inside its " + std::string(what));
  T value;
  std::memcpy(&value, here(), sizeof value);
  at_ += sizeof value;
  return value;
}

GgufType GgufFile::Reader::value_type(std::string_view what) {
  const std::uint64_t offset = at_;
  const auto id = number<std::uint32_t>(what);
  if (id > static_cast<std::uint32_t>(GgufType::kFloat64)) fail(offset, std::string(what) + " is unknown: " + text(id));
  return static_cast<GgufType>(id);
}

std::uint64_t GgufFile::Reader::counted(std::string_view what, std::uint64_t min_bytes) {
  const std::uint64_t offset = at_;
  const auto count = number<std::uint64_t>(what);
  if (count > remaining() / min_bytes) {
    fail(offset, std::string(what) + " is " + text(count) + ", more than the file's remaining " + text(remaining()) +
                     " bytes can hold");
  }
  return count;
}

std::string_view GgufFile::Reader::string(std::string_view what, std::uint64_t max_bytes) {
  const std::uint64_t offset = at_;
  const std::uint64_t length = counted(what, 1);
  if (length > max_bytes) {
    fail(offset, std::string(what) + " is " + text(length) + ", at most " + text(max_bytes) + " are allowed");
  }
  const std::string_view view(here(), length);
  at_ += length;
  return view;
}

void GgufFile::Reader::read() {
  read_magic_and_version();
  const std::uint64_t count_offset = at_;
  const auto num_tensors = number<std::uint64_t>("number of tensors");
  const std::uint64_t num_keys = counted("number of metadata keys", kMinKeyRecord);
  if (num_tensors > remaining() / kMinTensorRecord) {
    fail(count_offset, "number of tensors is " + text(num_tensors) + ", more than the file's remaining " +
                           text(remaining()) + " bytes can hold");
  }
  read_metadata(num_keys);
  take_alignment();
  read_tensors(num_tensors);
  place_tensors();
}

void GgufFile::Reader::read_magic_and_version() {
  const std::string_view magic(here(), std::min<std::uint64_t>(4, bytes_.size()));
  if (magic == "GGML" || magic == "lmgg" || magic == "tjgg" || magic == "fmgg" || magic == "algg") {
    fail(0, "is of the older GGML format, which GGUF replaced: convert it to GGUF");
  }
  if (magic != "GGUF") fail(0, "not a GGUF file: it begins with \"" + printable(magic) + "\", not with \"GGUF\"");
  at_ = 4;
  file_.version_ = number<std::uint32_t>("version");
  if (file_.version_ == 2 || file_.version_ == 3) return;
  const std::uint32_t swapped = __builtin_bswap32(file_.version_);
  if (swapped >= 1 && swapped <= 0xFFFF) fail(4, "is a big-endian file; only little-endian ones are read");
  fail(4, "has version " + text(file_.version_) + "; versions 2 and 3 are read");
}

void GgufFile::Reader::read_metadata(std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    subject_ = "metadata";
    name_ = {};
    const std::uint64_t record = at_;
    const std::string_view key = string("key length", kMaxKeyBytes);
    if (key.empty()) fail(record, "key " + text(i) + " has no name");
    subject_ = "key";
    name_ = key;
    const GgufType type = value_type("value type");
    if (!file_.metadata_.try_emplace(key, read_value(type)).second) fail(record, "is there twice");
    file_.keys_.push_back(key);
  }
  subject_ = "header";
  name_ = {};
}

GgufValue GgufFile::Reader::read_value(GgufType type) {
  constexpr std::string_view kWhat = "value";
  switch (type) {
    case GgufType::kUint8:
      return std::uint64_t{number<std::uint8_t>(kWhat)};
    case GgufType::kUint16:
      return std::uint64_t{number<std::uint16_t>(kWhat)};
    case GgufType::kUint32:
      return std::uint64_t{number<std::uint32_t>(kWhat)};
    case GgufType::kUint64:
      return number<std::uint64_t>(kWhat);
    case GgufType::kInt8:
      return std::int64_t{number<std::int8_t>(kWhat)};
    case GgufType::kInt16:
      return std::int64_t{number<std::int16_t>(kWhat)};
    case GgufType::kInt32:
      return std::int64_t{number<std::int32_t>(kWhat)};
    case GgufType::kInt64:
      return number<std::int64_t>(kWhat);
    case GgufType::kFloat32:
      return double{number<float>(kWhat)};
    case GgufType::kFloat64:
      return number<double>(kWhat);
    case GgufType::kString:
      return string("string length", bytes_.size());
    case GgufType::kArray:
      return read_array();
    case GgufType::kBool:
      break;
  }
  const auto value = number<std::uint8_t>(kWhat);
  if (value > 1) fail(at_ - 1, "a bool is 0 or 1, not " + text(value));
  return value == 1;
}

GgufArray GgufFile::Reader::read_array() {
  GgufArray array;
  array.element_type = value_type("array's element type");
  array.size = counted("array's length", min_value_bytes(array.element_type));
  const std::uint64_t start = at_;
  if (array.element_type == GgufType::kString) {
    for (std::uint64_t i = 0; i < array.size; ++i) array.strings.push_back(string("string length", bytes_.size()));
  } else {
    skip_nested(array.element_type, array.size, 1);
  }
  array.bytes = bytes_.subspan(start, at_ - start);
  return array;
}

// Checks and passes `count` elements of an array at nesting depth `depth`; the caller has checked the count.
void GgufFile::Reader::skip_nested(GgufType type, std::uint64_t count, int depth) {
  if (type == GgufType::kString) {
    for (std::uint64_t i = 0; i < count; ++i) string("string length", bytes_.size());
  } else if (type == GgufType::kArray) {
    if (depth == kMaxArrayDepth) fail(at_, "arrays are nested more than " + text(kMaxArrayDepth) + " deep");
    for (std::uint64_t i = 0; i < count; ++i) {
      const GgufType inner = value_type("array's element type");
      skip_nested(inner, counted("array's length", min_value_bytes(inner)), depth + 1);
    }
  } else {
    if (type == GgufType::kBool) {
      const char* end = here() + count;
      const char* bad = std::find_if(here(), end, [](char c) { return c != 0 && c != 1; });
      if (bad != end) fail(at_ + static_cast<std::uint64_t>(bad - here()), "a bool is 0 or 1");
    }
    at_ += count * gguf_type_size(type);
  }
}

void GgufFile::Reader::take_alignment() {
  const std::uint64_t alignment = file_.find_uint("general.alignment").value_or(file_.alignment_);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    file_.fail("key \"general.alignment\": is " + text(alignment) + "; a power of two from " + text(kMinAlignment) +
               " to " + text(kMaxAlignment) + " is expected");
  }
  file_.alignment_ = alignment;
}

void GgufFile::Reader::read_tensors(std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    subject_ = "tensor";
    name_ = {};
    const std::uint64_t record = at_;
    name_ = string("name length", kMaxTensorNameBytes);
    if (name_.empty()) fail(record, "number " + text(i) + " has no name");
    if (!file_.tensor_index_.try_emplace(name_, file_.tensors_.size()).second) fail(record, "is there twice");
    file_.tensors_.push_back(read_tensor());
  }
}

GgufTensor GgufFile::Reader::read_tensor() {
  GgufTensor tensor{name_, TensorType::kF32, {}, {}};
  Placed placed{at_, 0, 0};
  read_shape(tensor);
  const std::uint64_t type_offset = at_;
  const auto id = number<std::uint32_t>("type");
  const TensorTypeInfo* info = find_tensor_type(id);
  if (info == nullptr) {
    fail(type_offset,
         "has type " + text(id) + " (" + std::string(tensor_type_name(id)) + "), which folio does not read");
  }
  tensor.type = info->type;
  if (tensor.row_length() % info->block_elements != 0) {
    fail(type_offset, "has rows of " + text(tensor.row_length()) + ", no multiple of the " +
                          text(info->block_elements) + " values in a block of its type " + info->name);
  }
  // read_shape bounded the product of the dimensions by 2^63; a block's bytes are at most 4 times its elements.
  const std::uint64_t blocks = tensor.row_length() / info->block_elements * tensor.num_rows();
  if (__builtin_mul_overflow(blocks, std::uint64_t{info->block_bytes}, &placed.size)) {
    fail(placed.record, "has more bytes than a file can");
  }
  const std::uint64_t offset_offset = at_;
  placed.offset = number<std::uint64_t>("offset");
  if (placed.offset % file_.alignment_ != 0) {
    fail(offset_offset,
         "its offset " + text(placed.offset) + " is no multiple of the alignment " + text(file_.alignment_));
  }
  placed_.push_back(placed);
  return tensor;
}

void GgufFile::Reader::read_shape(GgufTensor& tensor) {
  const std::uint64_t offset = at_;
  const auto num_dims = number<std::uint32_t>("number of dimensions");
  if (num_dims < 1 || num_dims > kMaxDims) {
    fail(offset, "has " + text(num_dims) + " dimensions; 1 to " + text(kMaxDims) + " are read");
  }
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    const auto dim = number<std::uint64_t>("dimensions");
    if (dim == 0) fail(at_ - 8, "dimension " + text(i) + " is 0");
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      fail(at_ - 8, "its dimensions multiply to more than 2^63 at dimension " + text(i) + " = " + text(dim));
    }
    tensor.shape.push_back(dim);
  }
}

// The data section begins at the first aligned byte after the records.
void GgufFile::Reader::place_tensors() {
  const std::uint64_t start = (at_ + file_.alignment_ - 1) / file_.alignment_ * file_.alignment_;
  const std::uint64_t available = start < bytes_.size() ? bytes_.size() - start : 0;
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const Placed& placed = placed_[i];
    name_ = file_.tensors_[i].name;
    if (placed.offset > available || placed.size > available - placed.offset) {
      fail(placed.record, "its data, " + text(placed.size) + " bytes at offset " + text(placed.offset) +
                              " of the data section, ends outside the file of " + text(bytes_.size()) +
                              " bytes: the file is truncated or broken");
    }
    file_.tensors_[i].data = bytes_.subspan(start + placed.offset, placed.size);
  }
  check_overlaps();
}

void GgufFile::Reader::check_overlaps() {
  std::vector<std::size_t> order(placed_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [this](std::size_t a, std::size_t b) { return placed_[a].offset < placed_[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Placed& before = placed_[order[i - 1]];
    const Placed& placed = placed_[order[i]];
    if (placed.offset >= before.offset + before.size) continue;
    name_ = file_.tensors_[order[i]].name;
    fail(placed.record, "its data lies over that of tensor \"" + printable(file_.tensors_[order[i - 1]].name) + '"');
  }
}

}  // namespace folio
