#include "engine/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "base/check.h"

namespace folio {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

// White_Space of Unicode, as the inside of a class.
constexpr const char* kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string with_own_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? kSpaces : '[' + std::string(kSpaces) + ']';
      } else if (escaped == 'S') {
        out += "[^" + std::string(kSpaces) + ']';
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

}  // namespace

class PreTokenizer::Regex {
 public:
  explicit Regex(const char* pattern) : context_(pcre2_match_context_create(nullptr)) {
    const std::string own = with_own_spaces(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(own.data()), own.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr));
    FOLIO_CHECK(code_ != nullptr && context_ != nullptr, pattern);
    // Where the system forbids executable memory, PCRE2 interprets: slower, the same words.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    pcre2_set_match_limit(context_.get(), 100'000'000);
    pcre2_set_heap_limit(context_.get(), 64U << 10);  // in KiB
  }

  // The first match in `text` from `from` on. 1: found; 0: none; -1: a limit was hit.
  int find(std::string_view text, std::size_t from, pcre2_match_data* data) const {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                               PCRE2_NO_UTF_CHECK, data, context_.get());
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    return rc < 0 ? -1 : 1;
  }

 private:
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) {
  for (const char* pattern : rule.passes) passes_.push_back(std::make_unique<const Regex>(pattern));
}

PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::split(std::string_view text, std::vector<std::uint32_t>& ends) const {
  ends.clear();
  if (text.empty()) return true;
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
  FOLIO_CHECK(data != nullptr, "out of memory");
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());

  bool complete = true;
  ends.push_back(static_cast<std::uint32_t>(text.size()));
  std::vector<std::uint32_t> parts;
  for (const auto& pass : passes_) {
    parts.swap(ends);
    ends.clear();
    std::size_t begin = 0;
    for (const std::uint32_t end : parts) {
      // Look-ahead ends with the part, so the part is the subject.
      const std::string_view part = text.substr(begin, end - begin);
      std::size_t position = 0;
      while (position < part.size() && part.size() > 1) {
        const int found = pass->find(part, position, data.get());
        if (found < 0) complete = false;
        if (found <= 0) break;
        FOLIO_CHECK(match[1] > match[0], "a rule matches no empty word");
        if (match[0] > position) ends.push_back(static_cast<std::uint32_t>(begin + match[0]));
        ends.push_back(static_cast<std::uint32_t>(begin + match[1]));
        position = match[1];
      }
      if (position < part.size()) ends.push_back(end);
      begin = end;
    }
  }
  return complete;
}

}  // namespace folio
