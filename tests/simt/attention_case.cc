#include "tests/simt/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/simt/either_buffer.h"

namespace folio::cuda {
namespace {

constexpr std::int32_t kLayers = 2;
constexpr std::int32_t kLayer = 1;
constexpr float kLog2E = 1.44269504F;

// A function of what is asked for alone.
std::vector<float> make_row(std::uint32_t content, int what, std::int32_t position, std::int32_t head, int dim) {
  std::seed_seq seed{content, static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(position),
                     static_cast<std::uint32_t>(head)};
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (float& value : row) value = normal(random);
  return row;
}
enum : int { kQuery, kKey, kValue };

float largest(const std::vector<float>& values) {
  float most = 0.0F;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

template <class T>
void put(char* to, std::size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}
template <class T>
T get(const char* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

AttentionSetup AttentionShape::setup() const {
  return {.num_heads = num_kv_heads * group,
          .num_kv_heads = num_kv_heads,
          .head_dim = stored_dim > 0 ? stored_dim : head_dim,
          .block_size = block_size,
          .window = window,
          .num_sms = num_sms,
          .deterministic = deterministic};
}

AttentionCase::AttentionCase(const AttentionShape& shape, const std::vector<Sequence>& sequences)
    : shape_(shape), num_heads_(static_cast<std::size_t>(shape.num_kv_heads * shape.group)) {
  std::int32_t blocks = 0;
  std::uint32_t contents = 0;
  for (const Sequence& sequence : sequences) {
    blocks += (sequence.context - 1) / shape.block_size + 1;
    contents = std::max(contents, sequence.content + 1);
  }
  layout_ = {.num_layers = kLayers,
             .num_kv_heads = shape.num_kv_heads,
             .head_dim = shape.setup().head_dim,
             .block_size = shape.block_size,
             .num_blocks = blocks,
             .element = shape.element};
  cache_.assign(layout_.total_bytes(), '\xff');
  free_blocks_.resize(static_cast<std::size_t>(blocks));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 1);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), std::minstd_rand(5));
  shared_blocks_.resize(contents);
  batch_.query_start = batch_.block_start = {0};
  for (const Sequence& sequence : sequences) add_sequence(sequence);
  plan_attention(batch_, shape.setup(), plan_);
}

void AttentionCase::add_sequence(const Sequence& sequence) {
  const std::int32_t first_position = sequence.context - sequence.count;
  const std::int32_t first_key = shape_.window > 0 ? std::max(0, first_position - shape_.window + 1) : 0;
  auto& shared = shared_blocks_[sequence.content];
  for (std::int32_t begin = 0; begin < sequence.context; begin += shape_.block_size) {
    const auto index = static_cast<std::size_t>(begin / shape_.block_size);
    const bool is_shared = begin + shape_.block_size <= sequence.shared_keys;
    if (begin + shape_.block_size <= first_key) {
      batch_.block_ids.push_back(-1);
    } else if (is_shared && index < shared.size()) {
      batch_.block_ids.push_back(shared[index]);
    } else {
      const BlockId block = free_blocks_.back();
      free_blocks_.pop_back();
      fill_block(sequence, block, begin, first_key, sequence.context);
      batch_.block_ids.push_back(block);
      if (is_shared) shared.push_back(block);
    }
  }
  batch_.block_ids.insert(batch_.block_ids.end(), 2, -1);  // room that is not used yet
  batch_.block_start.push_back(static_cast<std::int32_t>(batch_.block_ids.size()));
  for (std::int32_t position = first_position; position < sequence.context; ++position) {
    batch_.tokens.push_back(0);
    batch_.positions.push_back(position);
    for (std::size_t head = 0; head < num_heads_; ++head) {
      auto row = make_row(sequence.content, kQuery, position, static_cast<std::int32_t>(head), shape_.head_dim);
      const float scale = 1.5F * kLog2E / std::sqrt(static_cast<float>(shape_.head_dim));
      for (const float value : row) q_.push_back(value * scale);
    }
  }
  batch_.query_start.push_back(batch_.num_tokens());
  batch_.context_len.push_back(sequence.context);
}

// Keys [from, to) of the block whose first key is first_key.
void AttentionCase::fill_block(const Sequence& sequence, BlockId block, std::int32_t first_key, std::int32_t from,
                               std::int32_t to) {
  for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
    char* at = cache_.data() + layout_.head_offset(kLayer, block, head);
    for (std::int32_t token = 0; token < shape_.block_size; ++token) {
      const std::int32_t key = first_key + token;
      if (key < from || key >= to) continue;
      store_row(at + layout_.key_row(token), at + layout_.key_scale(token),
                make_row(sequence.content, kKey, key, head, shape_.head_dim));
      store_row(at + layout_.value_row(token), at + layout_.value_scale(token),
                make_row(sequence.content, kValue, key, head, shape_.head_dim));
    }
  }
}

void AttentionCase::store_row(char* row, char* scale, std::vector<float> values) {
  values.resize(static_cast<std::size_t>(layout_.head_dim));
  const float most = shape_.element == KvElement::kInt8 ? 127.0F : 448.0F;
  const float step = largest(values) / most;
  if (layout_.has_scales()) put(scale, 0, step);
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (shape_.element) {
      case KvElement::kF16:
        put(row, i, __float2half_rn(values[i]));
        break;
      case KvElement::kBF16:
        put(row, i, __float2bfloat16_rn(values[i]));
        break;
      case KvElement::kInt8:
        put(row, i, static_cast<std::int8_t>(std::lrint(values[i] / step)));
        break;
      case KvElement::kFp8:
        put(row, i, __nv_cvt_float_to_fp8(values[i] / step, __NV_SATFINITE, __NV_E4M3));
        break;
    }
  }
}

std::vector<double> AttentionCase::load_row(const char* row, const char* scale, bool is_rounded) const {
  std::vector<double> values(static_cast<std::size_t>(shape_.head_dim));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (shape_.element) {
      case KvElement::kF16:
        values[i] = __half2float(get<__half>(row, i));
        break;
      case KvElement::kBF16:
        values[i] = __bfloat162float(get<__nv_bfloat16>(row, i));
        break;
      case KvElement::kInt8:
        values[i] = get<std::int8_t>(row, i);
        break;
      case KvElement::kFp8:
        values[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(get<__nv_fp8_storage_t>(row, i), __NV_E4M3)));
        break;
    }
    if (!layout_.has_scales()) continue;
    values[i] *= get<float>(scale, 0);
    if (is_rounded) values[i] = __half2float(__float2half_rn(static_cast<float>(values[i])));
  }
  return values;
}

std::vector<float> AttentionCase::run(std::int32_t padding) const {
  const AttentionSetup setup = shape_.setup();
  const AttentionExtent extent = padding == 0 ? plan_.extent() : decode_bounds(setup, batch_.num_sequences() + padding);
  std::vector<std::int32_t> flat(AttentionPlanLayout(extent).size, -1);
  flatten(plan_, extent, flat);
  const DeviceBuffer<std::int32_t> plan(flat);
  const DeviceBuffer<char> cache(cache_);
  const DeviceBuffer<float> q(q_);
  const DeviceBuffer<std::int32_t> positions(batch_.positions);
  const DeviceBuffer<BlockId> block_ids(batch_.block_ids);
  DeviceBuffer<float> workspace(attention_workspace_floats(setup, extent));
  DeviceBuffer<float> out(q_.size());
  AttentionWork work{.layout = layout_,
                     .cache = cache.data(),
                     .layer = kLayer,
                     .num_heads = setup.num_heads,
                     .head_dim = shape_.head_dim,
                     .window = shape_.window,
                     .fold_keys = plan_.fold_keys,
                     .q = q.data(),
                     .out = out.data(),
                     .positions = positions.data(),
                     .block_ids = block_ids.data()};
  use_plan(work, plan.data(), extent, workspace.data());
  attend(work, extent, nullptr);
  return out.to_vector();
}

std::vector<float> AttentionCase::reference(bool is_rounded) const {
  std::vector<float> out(q_.size());
  for (std::size_t s = 0; s < batch_.context_len.size(); ++s) {
    for (auto token = static_cast<std::size_t>(batch_.query_start[s]);
         token < static_cast<std::size_t>(batch_.query_start[s + 1]); ++token) {
      attend_token(s, token, is_rounded, out);
    }
  }
  return out;
}

void AttentionCase::attend_token(std::size_t sequence, std::size_t token, bool is_rounded,
                                 std::vector<float>& out) const {
  const std::int32_t position = batch_.positions[token];
  const std::int32_t first = shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0;
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  std::vector<double> sums(floats_of_token());
  std::vector<double> weights(num_heads_);
  for (std::int32_t key = first; key <= position; ++key) {
    const auto entry = static_cast<std::size_t>(batch_.block_start[sequence] + key / shape_.block_size);
    const std::int32_t offset = key % shape_.block_size;
    for (std::int32_t kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
      const char* at = cache_.data() + layout_.head_offset(kLayer, batch_.block_ids[entry], kv_head);
      const auto k = load_row(at + layout_.key_row(offset), at + layout_.key_scale(offset), is_rounded);
      const auto v = load_row(at + layout_.value_row(offset), at + layout_.value_scale(offset), is_rounded);
      for (auto head = static_cast<std::size_t>(kv_head * shape_.group);
           head < static_cast<std::size_t>((kv_head + 1) * shape_.group); ++head) {
        double score = 0.0;
        for (std::size_t i = 0; i < dim; ++i) {
          float q = q_[token * floats_of_token() + head * dim + i];
          if (is_rounded) {
            q = shape_.element == KvElement::kBF16 ? __bfloat162float(__float2bfloat16_rn(q))
                                                   : __half2float(__float2half_rn(q));
          }
          score += q * k[i];
        }
        const double weight = std::exp2(score);  // scores are small: no maximum
        weights[head] += weight;
        for (std::size_t i = 0; i < dim; ++i) sums[head * dim + i] += weight * v[i];
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out[token * floats_of_token() + i] = static_cast<float>(sums[i] / weights[i / dim]);
  }
}

}  // namespace folio::cuda
