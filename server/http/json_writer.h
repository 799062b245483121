// JSON text, written straight into a string: an answer with many log probabilities needs no tree of it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace folio {

// `text` as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The shortest decimal that reads back as `value`. REQUIRES finite.
void append_json_number(std::string& out, float value);

// Members of an object, in the order in which they are added: the commas are its business.
//   JsonObject object(out);  object.text("id", id);  object.raw("usage", "null");  object.close();
class JsonObject {
 public:
  explicit JsonObject(std::string& out) : out_(out) { out_ += '{'; }
  // Writes `"name":`; the value is the caller's.
  std::string& key(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    append_json_string(out_, name);
    out_ += ':';
    return out_;
  }
  void text(std::string_view name, std::string_view value) { append_json_string(key(name), value); }
  void integer(std::string_view name, std::int64_t value) { key(name) += std::to_string(value); }
  void natural(std::string_view name, std::uint64_t value) { key(name) += std::to_string(value); }
  void number(std::string_view name, float value) { append_json_number(key(name), value); }
  void raw(std::string_view name, std::string_view json) { key(name) += json; }
  void close() { out_ += '}'; }

 private:
  std::string& out_;
  bool first_ = true;
};

// [a,b,...]: write is called for each element.
template <class Range, class Write>
void append_json_array(std::string& out, const Range& range, const Write& write) {
  out += '[';
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += ',';
    first = false;
    write(out, element);
  }
  out += ']';
}

}  // namespace folio
