// Small vocabularies for tests: a GGUF file with nothing but a tokenizer.
#pragma once
#include <string>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/text/tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio::testing {

struct VocabularyBuilder {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;
  GgufWriter extra;  // further keys

  TokenId add(std::string spelling, TokenKind kind = TokenKind::kNormal, float score = 0.0F) {
    tokens.push_back(std::move(spelling));
    types.push_back(static_cast<std::int32_t>(kind));
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size()) - 1;
  }

  // One token for each byte that is not left out, spelled in GPT-2's alphabet (model "gpt2") or as <0xNN>.
  void add_bytes(std::string_view left_out = "") {
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const int code = printable ? byte : next++;
      if (left_out.find(static_cast<char>(byte)) != std::string_view::npos) continue;
      if (model == "llama") {
        static const char* digits = "0123456789ABCDEF";
        add({'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'}, TokenKind::kByte);
      } else if (code < 0x80) {
        add(std::string(1, static_cast<char>(code)));
      } else {
        add({static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))});
      }
    }
  }

  GgufWriter writer() const {
    GgufWriter out = extra;
    out.add_string("tokenizer.ggml.model", model);
    out.add_string("tokenizer.ggml.pre", pre);
    out.add_string_array("tokenizer.ggml.tokens", tokens);
    out.add_int32_array("tokenizer.ggml.token_type", types);
    if (model == "llama") out.add_float32_array("tokenizer.ggml.scores", scores);
    if (model == "gpt2") out.add_string_array("tokenizer.ggml.merges", merges);
    return out;
  }
  std::unique_ptr<Tokenizer> build() const { return build(writer()); }
  static std::unique_ptr<Tokenizer> build(const GgufWriter& writer) {
    const TempFolder folder;
    return make_tokenizer(GgufFile(folder.write("vocabulary.gguf", writer.bytes())));
  }
};

inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, parse_special, ids);
  return ids;
}

inline std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.piece(id);
  return text;
}

}  // namespace folio::testing
