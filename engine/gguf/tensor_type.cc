#include "engine/gguf/tensor_type.h"

#include "base/check.h"

namespace folio {
namespace {

constexpr TensorTypeInfo kReadable[] = {
    {TensorType::kF32, "F32", 1, 4},       {TensorType::kF16, "F16", 1, 2},       {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},   {TensorType::kQ5_0, "Q5_0", 32, 22},   {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},   {TensorType::kQ4_K, "Q4_K", 256, 144}, {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210}, {TensorType::kBF16, "BF16", 1, 2},
};

// By id. The ones that the format gave up keep their last name, so that a refusal says what an old file holds.
// clang-format off
constexpr std::string_view kNames[] = {
    "F32", "F16", "Q4_0", "Q4_1", "Q4_2, removed", "Q4_3, removed", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K",
    "Q4_K", "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8", "I16", "I32", "I64", "F64", "IQ1_M", "BF16", "Q4_0_4_4, removed", "Q4_0_4_8, removed", "Q4_0_8_8, removed",
    "TQ1_0", "TQ2_0", "IQ4_NL_4_4, removed", "IQ4_NL_4_8, removed", "IQ4_NL_8_8, removed", "MXFP4", "NVFP4", "Q1_0",
};
// clang-format on
static_assert(std::size(kNames) == 42);

}  // namespace

const TensorTypeInfo* find_tensor_type(std::uint32_t id) {
  for (const TensorTypeInfo& info : kReadable) {
    if (static_cast<std::uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

std::string_view tensor_type_name(std::uint32_t id) {
  return id < std::size(kNames) ? kNames[id] : "unknown";
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
  const TensorTypeInfo* info = find_tensor_type(static_cast<std::uint32_t>(type));
  FOLIO_CHECK(info != nullptr, "a TensorType is one of its enumerators");
  return *info;
}

}  // namespace folio
