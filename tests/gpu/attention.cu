// The attention kernels against attention in double: a cut of tests/simt/attention_test.cc, which has the reasons.
#include "tests/gpu/compare.h"
#include "tests/gpu/parts.h"
#include "tests/simt/attention_case.h"

namespace folio::gpu {
namespace {

using cuda::AttentionCase;
using cuda::AttentionShape;
using cuda::KvElement;
using cuda::Sequence;

constexpr KvElement kElements[] = {KvElement::kF16, KvElement::kBF16, KvElement::kInt8, KvElement::kFp8};

std::string describe(const AttentionShape& shape) {
  constexpr const char* kNames[] = {"f16", "bf16", "int8", "fp8"};
  return std::string(kNames[static_cast<int>(shape.element)]) + " dim " + std::to_string(shape.head_dim) + " group " +
         std::to_string(shape.group) + " block " + std::to_string(shape.block_size) + " window " +
         std::to_string(shape.window) + (shape.deterministic ? " deterministic" : "");
}

double tolerance(const AttentionShape& shape) {
  return shape.element == KvElement::kBF16 ? 8e-3 : 1.5e-3;
}

void check(Report& report, const std::string& what, const AttentionShape& shape,
           const std::vector<Sequence>& sequences) {
  const AttentionCase attention(shape, sequences);
  check_near(report, what + ", " + describe(shape), attention.run(), attention.reference(true), tolerance(shape));
}

void check_instantiations(Report& report) {
  int block_size = 16;
  for (const KvElement element : kElements) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      for (const int group : {2, 5}) {
        check(report, "decodes and a chunk",
              {.element = element, .head_dim = head_dim, .group = group, .block_size = block_size},
              {{.context = 1}, {.context = 77, .content = 1}, {.context = 41, .count = 9, .content = 2}});
        block_size = 48 - block_size;
      }
      block_size = 48 - block_size;
    }
  }
  for (int group = 1; group <= 16; ++group) {
    check(report, "every group", {.num_kv_heads = 2, .group = group},
          {{.context = 35}, {.context = 150, .content = 1}, {.context = 29, .count = 11, .content = 2}});
  }
  for (const auto& [head_dim, stored_dim] : {std::pair{16, 64}, {72, 80}, {112, 128}}) {
    check(report, "a head kept as a larger one",
          {.element = KvElement::kInt8, .head_dim = head_dim, .stored_dim = stored_dim, .group = 5},
          {{.context = 130}, {.context = 41, .count = 9, .content = 1}});
  }
}

void check_lengths(Report& report) {
  for (const int group : {1, 4}) {
    std::vector<Sequence> decodes;
    for (const int length : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129}) {
      decodes.push_back({.context = length, .content = static_cast<std::uint32_t>(length)});
    }
    check(report, "lengths around the tiles", {.group = group, .block_size = 32}, decodes);
    check(report, "300 blocks", {.element = KvElement::kBF16, .group = group, .num_sms = 132},
          {{.context = 4793}, {.context = 4800, .count = 3, .content = 1}, {.context = 20, .content = 2}});
    for (const int window : {1, 30, 100}) {
      check(report, "a window", {.group = group, .window = window},
            {{.context = 20}, {.context = 333, .content = 1}, {.context = 270, .count = 40, .content = 2}});
    }
  }
}

void check_prefixes(Report& report) {
  for (const int group : {1, 6}) {
    const AttentionShape shape{.num_kv_heads = 2, .group = group};
    std::vector<Sequence> together{{.context = 40, .content = 1}};
    for (int i = 0; i < 6; ++i) together.push_back({.context = 300 + 13 * i, .shared_keys = 288});
    const AttentionCase cascade(shape, together);
    report.check("a shared prefix is one item", cascade.plan().tile_items.size() == 1);
    check_near(report, "a shared prefix, " + describe(shape), cascade.run(), cascade.reference(true), tolerance(shape));
  }
}

// What a token gets does not depend on the chunks, on who shares the step, or on how many CTAs there are.
void check_determinism(Report& report) {
  constexpr std::int32_t kLength = 590;
  AttentionShape shape{.element = KvElement::kBF16, .group = 6, .num_sms = 1, .deterministic = true};
  const AttentionCase whole(shape, {{.context = kLength, .count = 83}});
  const std::vector<float> expected = whole.run();
  check_near(report, "all tokens at once, " + describe(shape), expected, whole.reference(true), tolerance(shape));
  check_equal(report, "the same again", whole.run(), expected);
  shape.num_sms = 132;
  const std::size_t size = whole.floats_of_token();
  for (const int count : {1, 7, 22}) {
    const AttentionCase part(shape, {{.context = 300, .count = 2, .content = 1}, {.context = kLength, .count = count}});
    const std::vector<float> out = part.run();
    const std::size_t floats = static_cast<std::size_t>(count) * size;
    check_equal(report, "deterministic chunks of " + std::to_string(count), std::span(out).last(floats),
                std::span(expected).last(floats));
  }
  const AttentionCase padded({.group = 4}, {{.context = 800}, {.context = 33, .content = 1}});
  check_equal(report, "padded grids", padded.run(3), padded.run());
}

}  // namespace

void check_attention(Report& report) {
  check_instantiations(report);
  check_lengths(report);
  check_prefixes(report);
  check_determinism(report);
}

void check_small_attention(Report& report) {
  check(report, "decodes and a chunk", {.element = KvElement::kBF16, .group = 4, .num_sms = 2},
        {{.context = 200}, {.context = 41, .count = 9, .content = 1}});
}

}  // namespace folio::gpu
