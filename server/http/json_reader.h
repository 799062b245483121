// A caller's JSON, read with suspicion: bounded, without duplicate keys, and every complaint names the field.
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace folio {

inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = 1U << 19;  // of a whole body: what a tree of them takes is bounded

// One JSON object. kInvalidArgument, the field first ("messages[3].role: given twice"), for text that is not UTF-8 or
// begins with a byte-order mark, syntax, depth, number of values, a key given twice, a number beyond a double.
Result<nlohmann::json> parse_json_object(std::string_view text);

// The members of one object, asked for by name and type; null counts as not given. The first thing that is wrong is
// kept, and what is asked for after it is not given.
class ObjectReader {
 public:
  // `object` outlives the reader and is an object. `prefix` stands before the names in complaints: "messages[3].".
  explicit ObjectReader(const nlohmann::json& object, std::string prefix = "");

  const nlohmann::json* find(const char* name);  // nullptr: not given
  std::optional<bool> boolean(const char* name);
  std::optional<double> number(const char* name);
  // A whole number in [low, high]; 3.0 is one.
  std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high);
  std::optional<std::uint64_t> seed(const char* name);  // any 64-bit number, negative ones by their bits
  std::optional<std::string> text(const char* name);
  // Refused unless it is not given or `harmless`.
  void refuse(const char* name, const nlohmann::json& harmless, const char* why = "not supported");

  void fail(const std::string& name, const std::string& why);
  void fail(const Error& error);  // a reader's of something inside
  bool failed() const { return error_.has_value(); }
  std::string path(const std::string& name) const { return prefix_ + name; }
  // At the end: the first complaint, also about a member that nobody asked for.
  std::optional<Error> finish();

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::set<std::string, std::less<>> asked_;
  std::optional<Error> error_;
};

Error invalid_field(const std::string& field, const std::string& why);
// The whole number that `value` is, if it is one in the range of 64 bits.
std::optional<std::int64_t> as_integer(const nlohmann::json& value);

}  // namespace folio
