#include "engine/text/tokenizer.h"

#include <string>

#include "base/log.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/printable.h"
#include "engine/text/bpe_tokenizer.h"
#include "engine/text/spm_tokenizer.h"

namespace folio {
namespace {

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kPreKey = "tokenizer.ggml.pre";

const PreTokenizerRule& rule_of(const GgufFile& file) {
  std::optional<std::string_view> name = file.find_string(kPreKey);
  if (!name) {
    log::warn(file.path() + ": no " + kPreKey +
              ", taking \"default\": text may be split otherwise than the model learnt");
    name = "default";
  }
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(*name);
  if (rule == nullptr)
    file.fail(std::string(kPreKey) + " " + printable(*name) + " is not a pre-tokenizer that folio knows");
  return *rule;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file) {
  const std::string_view model = file.get_string(kModelKey);
  if (model == "gpt2") return std::make_unique<BpeTokenizer>(file, rule_of(file));
  if (model == "llama") return std::make_unique<SpmTokenizer>(file);
  file.fail(std::string(kModelKey) + " " + printable(model) +
            " is not a tokenizer that folio knows (gpt2 and llama are)");
}

}  // namespace folio
