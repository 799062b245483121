// What the field cases share: one model file and what its requests give alone, kept for the whole program.
#pragma once
#include <gtest/gtest.h>

#include <map>

#include "tests/engine/reuse/stage.h"

namespace folio {

// The parameter is the model's path.
class ReuseCase : public testing::TestWithParam<const char*> {
 protected:
  const ModelFile& file() { return kept().file; }
  Answer alone(const GenerationRequest& request) { return kept().solo.run(request); }
  std::vector<Answer> alone(const std::vector<GenerationRequest>& requests) {
    std::vector<Answer> answers;
    for (const GenerationRequest& request : requests) answers.push_back(alone(request));
    return answers;
  }

 private:
  struct Kept {
    explicit Kept(const char* path) : file(path), solo(file) {}
    ModelFile file;
    Solo solo;
  };
  Kept& kept() {
    static std::map<std::string, Kept> all;
    return all.try_emplace(GetParam(), GetParam()).first->second;
  }
};

inline std::string model_name(const testing::TestParamInfo<const char*>& info) {
  return info.param == std::string(kTinyLlama) ? "Llama" : "Gemma3";
}

#define FOLIO_FOR_TINY_MODELS(suite) \
  INSTANTIATE_TEST_SUITE_P(Tiny, suite, testing::Values(kTinyLlama, kTinyGemma), model_name)

inline std::int64_t in_whole_blocks(std::int64_t num_tokens, std::int64_t block_size = 16) {
  return num_tokens / block_size * block_size;
}

}  // namespace folio
