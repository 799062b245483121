// Exact ids against llama.cpp's, over the reference strings of both models and four published vocabularies.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/gguf/gguf_file.h"
#include "engine/text/tokenizer.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  Ids ids;
  tokenizer.encode(text, parse_special, ids);
  return ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.piece(id);
  return text;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

struct ModelCase {
  const char* name;
  const char* model;
  const char* reference;
  std::size_t num_cases;
};

class ReferenceStrings : public ::testing::TestWithParam<ModelCase> {};

TEST_P(ReferenceStrings, GiveTheSameIdsAndTheSameText) {
  const ModelCase& param = GetParam();
  if (!std::filesystem::exists(param.model)) {
    GTEST_SKIP() << param.model << " is not there: scripts/setup fetches it";
  }
  const auto tokenizer = make_tokenizer(GgufFile(param.model));
  const auto reference = nlohmann::json::parse(testing::read_file(param.reference));
  const auto& cases = reference.at("cases");
  ASSERT_EQ(cases.size(), param.num_cases);
  for (const auto& item : cases) {
    const auto text = item.at("text").get<std::string>();
    SCOPED_TRACE(nlohmann::json(text.substr(0, 200)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    const Ids special = encode(*tokenizer, text, true);
    EXPECT_EQ(special, item.at("ids_parse_special_true").get<Ids>());
    EXPECT_EQ(encode(*tokenizer, text, false), item.at("ids_parse_special_false").get<Ids>());
    const std::string decoded = item.at("decoded").is_null() ? from_hex(item.at("decoded_hex").get<std::string>())
                                                             : item.at("decoded").get<std::string>();
    EXPECT_EQ(decode(*tokenizer, special), decoded);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceStrings,
                         ::testing::Values(ModelCase{"smollm2", "models/smollm2-135m-q4_1.gguf",
                                                     "tests/reference/tokenizer/smollm2.json", 240},
                                           ModelCase{"gemma3", "models/gemma-3-270m-q4_k_m.gguf",
                                                     "tests/reference/tokenizer/gemma3.json", 245}),
                         [](const auto& test) { return std::string(test.param.name); });

// llama.cpp's own vocabulary files stay outside of the repository.
std::string vocabulary_folder() {
  const char* shared = std::getenv("FOLIO_SHARED");
  return std::string(shared != nullptr ? shared : "../shared") + "/reference/tokenizer/vocab/";
}

std::vector<std::string> split_inputs(const std::string& text) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size()) {
    inputs.push_back(text.substr(begin, end - begin));
  }
  return inputs;
}

class PublishedVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedVocabulary, GivesTheSameIds) {
  const std::string base = vocabulary_folder() + "ggml-vocab-" + GetParam() + ".gguf";
  if (!std::filesystem::exists(base)) {
    GTEST_SKIP() << base << " is not there: third-party vocabularies are kept outside of the repository (FOLIO_SHARED)";
  }
  const auto tokenizer = make_tokenizer(GgufFile(base));
  const std::vector<std::string> inputs = split_inputs(testing::read_file(base + ".inp"));
  std::istringstream expected(testing::read_file(base + ".out"));
  ASSERT_EQ(inputs.size(), 46U);
  for (const std::string& input : inputs) {
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    const Ids ids{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(encode(*tokenizer, input, false), ids) << input;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PublishedVocabulary, ::testing::Values("gpt-2", "llama-bpe", "llama-spm", "phi-3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace folio
