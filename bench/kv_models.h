// Small models that differ in nothing but how many heads of K and V their query heads share.
#pragma once
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace folio::bench {

struct KvModel {
  std::string name;  // "MHA", "GQA", "MQA"
  std::string path;  // GGUF file
};

// Llama-style, Q8_0 with random weights: 8 layers of 512, 8 heads of 64 over 8, 2 and 1 heads of K and V, a context of
// 8192. About 22 MB each.
std::vector<KvModel> write_kv_models(const testing::TempFolder& folder);

}  // namespace folio::bench
