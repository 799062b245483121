#include "server/http/json_reader.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/utf8.h"
#include "server/validation.h"

namespace folio {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxNameBytes = 64;
constexpr double kLargestWhole = 9007199254740992.0;  // 2^53

// A caller's key as a part of a field's name.
std::string shown_name(std::string_view name) {
  return sanitize_utf8(truncate_utf8(name, kMaxNameBytes)) + (name.size() > kMaxNameBytes ? "..." : "");
}

// Builds the tree, and says where it stands when something is wrong.
class TreeBuilder final : public json::json_sax_t {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(std::int64_t v) override { return add(v); }
  bool number_unsigned(std::uint64_t v) override { return add(v); }
  bool number_float(double v, const std::string& /*raw*/) override { return add(v); }
  bool string(std::string& v) override { return add(std::move(v)); }
  bool binary(json::binary_t& /*v*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& v) override {
    Level& level = levels_.back();
    level.key = std::move(v);
    if (level.value->contains(level.key)) return fail("given twice");
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) return fail("the number is too large");
    return fail("not valid JSON at byte " + std::to_string(position));
  }

  json& root() { return root_; }
  const Error& error() const { return error_; }

 private:
  struct Level {
    json* value;
    std::string key;  // of an object: the member that is being read
  };

  bool fail(const std::string& why) {
    error_ = invalid_field(where(), why);
    return false;
  }
  // "messages[3].role"; for what is outside of any field: "body".
  std::string where() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.value->is_array()) {
        // An element that is being read itself is in the array already; any other would be its next.
        const std::size_t index = level.value->size() - (&level == &levels_.back() ? 0 : 1);
        path += "[" + std::to_string(index) + "]";
      } else if (!level.key.empty()) {
        if (!path.empty()) path += '.';
        path += shown_name(level.key);
      }
      constexpr std::size_t kMaxPathBytes = 200;
      if (path.size() > kMaxPathBytes) return path + "...";
    }
    return path.empty() ? "body" : path;
  }
  json* place(json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    return &((*level.value)[level.key] = std::move(value));
  }
  bool count() {
    if (++num_values_ <= kMaxJsonValues) return true;
    return fail("more than " + std::to_string(kMaxJsonValues) + " values in a body");
  }
  bool add(json value) {
    if (!count()) return false;
    if (levels_.empty()) return fail("must be a JSON object");
    place(std::move(value));
    levels_.back().key.clear();  // it is read: what follows is not in it
    return true;
  }
  bool open(json value) {
    if (!count()) return false;
    if (levels_.empty() && !value.is_object()) return fail("must be a JSON object");
    if (levels_.size() == kMaxJsonDepth) {
      return fail("nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    levels_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    if (!levels_.empty()) levels_.back().key.clear();
    return true;
  }

  json root_;
  std::vector<Level> levels_;
  std::size_t num_values_ = 0;
  Error error_;
};

std::size_t first_invalid_byte(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t length = utf8_length_at(text, position);
    if (length == 0) break;
    position += length;
  }
  return position;
}

}  // namespace

Error invalid_field(const std::string& field, const std::string& why) {
  return {ErrorCode::kInvalidArgument, field + ": " + why};
}

Result<json> parse_json_object(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) return invalid_field("body", "begins with a byte-order mark");
  if (const std::size_t bad = first_invalid_byte(text); bad < text.size()) {
    return invalid_field("body", "not valid UTF-8 at byte " + std::to_string(bad));
  }
  // The library takes it for the end of the text, and would pass over what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return invalid_field("body", "not valid JSON at byte " + std::to_string(nul + 1));
  }
  TreeBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return builder.error();
  return std::move(builder.root());
}

std::optional<std::int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > kLargestWhole || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

ObjectReader::ObjectReader(const json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

void ObjectReader::fail(const std::string& name, const std::string& why) {
  fail(invalid_field(path(name), why));
}

void ObjectReader::fail(const Error& error) {
  if (!error_) error_ = error;
}

const json* ObjectReader::find(const char* name) {
  asked_.insert(name);
  if (error_) return nullptr;
  const auto member = object_.find(name);
  return member == object_.end() || member->is_null() ? nullptr : &*member;
}

std::optional<bool> ObjectReader::boolean(const char* name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false");
  return std::nullopt;
}

std::optional<double> ObjectReader::number(const char* name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail(name, "must be a number");
    return std::nullopt;
  }
  // Fields are floats: what none of them can hold is no number for them either.
  const auto number = value->get<double>();
  if (std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max())) return number;
  fail(name, "the number is too large");
  return std::nullopt;
}

std::optional<std::int64_t> ObjectReader::integer(const char* name, std::int64_t low, std::int64_t high) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_integer(*value);
  if (number && *number >= low && *number <= high) return number;
  if (!value->is_number()) {
    fail(name, "must be a whole number");
    return std::nullopt;
  }
  fail(name, "must be a whole number in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
  return std::nullopt;
}

std::optional<std::uint64_t> ObjectReader::seed(const char* name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (const auto number = as_integer(*value)) return static_cast<std::uint64_t>(*number);
  fail(name, "must be a whole number of 64 bits");
  return std::nullopt;
}

std::optional<std::string> ObjectReader::text(const char* name) {
  const json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string");
  return std::nullopt;
}

void ObjectReader::refuse(const char* name, const json& harmless, const char* why) {
  const json* value = find(name);
  if (value != nullptr && *value != harmless) fail(name, why);
}

std::optional<Error> ObjectReader::finish() {
  for (auto member = object_.begin(); member != object_.end() && !error_; ++member) {
    if (!asked_.contains(member.key())) fail(shown_name(member.key()), "not a field of this call");
  }
  return error_;
}

}  // namespace folio
