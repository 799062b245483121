#include "engine/kernels/cuda/sampling.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/kernels/cuda/cta_sort.h"
#include "engine/kernels/cuda/row_device.h"

namespace folio::cuda {
namespace {

constexpr int kSliceThreads = 256;
constexpr std::int32_t kSlice = 8192;  // ids of a slice

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kBins = kWarps;            // a warp adds up a bin
constexpr int kListSize = 2 * kThreads;  // ids that are sorted instead of counted
constexpr std::int32_t kSegment = 2 * kThreads;
static_assert(kMaxSampledVocab / kSegment <= kThreads, "a thread a segment");

// The best of some ids; the lowest of equals. id -1: none is above -infinity.
struct Best {
  float value;
  std::int32_t id;
};
FOLIO_DEVICE Best better(Best a, Best b) {
  const bool takes_b = b.id >= 0 && (a.id < 0 || b.value > a.value || (b.value == a.value && b.id < a.id));
  return takes_b ? b : a;
}
FOLIO_DEVICE Best best_of_lanes(Best best) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    best = better(best, {shuffle_xor(best.value, mask), shuffle_xor(best.id, mask)});
  }
  return best;
}

struct LogitRow {
  const float* values;
  std::int32_t size;
};

// Calls visit(id, value) for the ids of [begin, end) that fall to this thread, four neighbours at a time; `begin` is a
// multiple of 4.
template <class Visit>
FOLIO_DEVICE void for_values(const LogitRow& row, std::int32_t begin, std::int32_t end, int thread, int num_threads,
                             Visit visit) {
  const bool aligned = row.size % 4 == 0;  // all rows begin at 16 bytes
  for (std::int32_t id = begin + 4 * thread; id < end; id += 4 * num_threads) {
    float values[4];
    if (aligned) {
      const float4 four = load_floats(row.values + id);
      values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else {
      for (int i = 0; i < 4; ++i) values[i] = id + i < end ? row.values[id + i] : -INFINITY;
    }
    for (int i = 0; i < 4; ++i) visit(id + i, values[i]);
  }
}

FOLIO_DEVICE LogitRow logit_row(const SampleRows& work, std::int32_t row) {
  return {work.logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(work.vocab_size), work.vocab_size};
}

struct SampleWork {
  SampleRows rows;
  std::int32_t num_slices = 0;
  Best* best = nullptr;  // [num_rows][num_slices]
};

// One CTA a slice of a row.
FOLIO_KERNEL(kSliceThreads) find_best_kernel(SampleWork work) {
  SharedArena arena;
  Best* of_warps = arena.take<Best>(kSliceThreads / kWarpSize);
  const std::int32_t index = work.rows.rows[blockIdx.y].logit_row;
  if (index < 0) return;
  const LogitRow row = logit_row(work.rows, index);
  const auto begin = static_cast<std::int32_t>(blockIdx.x) * kSlice;
  const std::int32_t end = begin + kSlice < row.size ? begin + kSlice : row.size;
  Best best{-INFINITY, -1};
  for_values(row, begin, end, static_cast<int>(threadIdx.x), kSliceThreads, [&](std::int32_t id, float value) {
    if (value > best.value) best = {value, id};
  });
  best = best_of_lanes(best);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = best;
  sync_cta();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kSliceThreads / kWarpSize; ++warp) best = better(best, of_warps[warp]);
    work.best[blockIdx.y * static_cast<unsigned>(work.num_slices) + blockIdx.x] = best;
  }
}

// One row of a CTA. What it holds is the same in all threads but for `shared`'s contents and own counts.
class RowSampler {
 public:
  static constexpr std::size_t kSharedBytes = sizeof(std::uint64_t) * (kBins * kThreads + kBins + kWarps + 2);

  FOLIO_DEVICE RowSampler(SharedArena& arena, const LogitRow& row, const SampleRow& params, float max)
      : row_(row),
        params_(params),
        max_(max),
        top_(order_key(max)),
        last_key_(order_key(least_weighing(max, params.temperature))),
        columns_(arena.take<std::uint64_t>(kBins * kThreads)),
        bins_(arena.take<std::uint64_t>(kBins)),
        totals_(arena.take<std::uint64_t>(kWarps)),
        found_(arena.take<std::uint64_t>(2)) {}

  // The order of the host's: top_k, top_p; min_p is in the weights. A cut that leaves few gives them as a list.
  FOLIO_DEVICE std::int32_t sample() {
    const auto one = [](float) { return std::uint64_t{1}; };
    const auto weight = [this](float value) { return weigh(value); };
    if (params_.top_k > 0) {
      const auto count = static_cast<std::uint64_t>(params_.top_k);
      const Few few = find_cut(one, [count](std::uint64_t) { return count; });
      if (few.count > 0) return choose_from_list(few, static_cast<int>(count < few.count ? count : few.count), 0);
    }
    if (params_.top_p < 1.0F) {
      const float top_p = params_.top_p;
      const Few few = find_cut(weight, [top_p](std::uint64_t total) { return head_goal(top_p, total); });
      if (few.count > 0) return choose_from_list(few, static_cast<int>(few.count), few.goal);
    }
    const double uniform = params_.uniform;
    return find_in_order([&](std::int32_t id, float value) { return keeps(id, value) ? weight(value) : 0; },
                         [uniform](std::uint64_t total) { return draw_goal(uniform, total); });
  }

 private:
  // The head of the ranking from `low` on, when it is short enough for the list.
  struct Few {
    std::uint32_t low = 0;
    std::uint32_t count = 0;  // 0: it is not
    std::uint32_t own = 0;    // of them, this thread's
    std::uint64_t goal = 0;
  };

  FOLIO_DEVICE std::uint64_t weigh(float value) const {
    return fixed_weight(value, max_, params_.temperature, params_.min_p);
  }
  // Whether an id ranks before the cut or is its last. Neither NaN nor what weighs nothing does.
  FOLIO_DEVICE bool keeps(std::int32_t id, float value) const {
    const std::uint32_t key = order_key(value);
    return key <= top_ && (key > last_key_ || (key == last_key_ && id <= last_id_));
  }
  template <class Visit>
  FOLIO_DEVICE void for_kept(Visit visit) const {
    for_values(row_, 0, row_.size, static_cast<int>(threadIdx.x), kThreads, [&](std::int32_t id, float value) {
      if (keeps(id, value)) visit(id, value);
    });
  }

  // Cuts the ranking where the measures of its head first add up to goal_of(the sum of all), if they ever do. By keys:
  // the range that holds the end is cut into 16, again and again.
  template <class Measure, class GoalOf>
  FOLIO_DEVICE Few find_cut(Measure measure, GoalOf goal_of) {
    std::uint32_t low = last_key_;
    std::uint32_t high = top_;
    std::uint64_t above = 0;  // of all with keys over `high`
    std::uint64_t goal = 0;
    do {
      int shift = 0;
      while ((high - low) >> shift >= kBins) ++shift;
      Few few = measure_bins(measure, low, high, shift);
      if (goal == 0) {
        std::uint64_t total = 0;
        for (int bin = 0; bin < kBins; ++bin) total += bins_[bin];
        goal = goal_of(total);
        if (total < goal && few.count > kListSize) return {};
      }
      few.goal = goal;
      if (few.count <= kListSize) return few;
      std::uint32_t bin = (high - low) >> shift;
      while (above + bins_[bin] < goal) above += bins_[bin--];
      low += bin << shift;
      const std::uint32_t width = (1U << shift) - 1;
      if (high - low > width) high = low + width;
    } while (low != high);
    // Equals: the first of them by id.
    const std::uint64_t each = measure(key_value(low));
    const std::uint64_t equals = (goal - above + each - 1) / each;
    const auto is_one = [&](std::int32_t id, float value) {
      return std::uint64_t{order_key(value) == low && keeps(id, value)};
    };
    last_id_ = find_in_order(is_one, [equals](std::uint64_t) { return equals; });
    last_key_ = low;
    return {};
  }

  // bins_[b]: the sum over the kept ids with a key of [low + b << shift, ...] up to `high`. Every thread adds up in a
  // column of its own, so no two meet.
  template <class Measure>
  FOLIO_DEVICE Few measure_bins(Measure measure, std::uint32_t low, std::uint32_t high, int shift) {
    std::uint64_t* own = columns_ + threadIdx.x;
    for (int bin = 0; bin < kBins; ++bin) own[bin * kThreads] = 0;
    Few few{low, 0, 0, 0};
    for_kept([&](std::int32_t, float value) {
      const std::uint32_t key = order_key(value);
      if (key < low) return;
      ++few.own;
      if (key <= high) own[((key - low) >> shift) * kThreads] += measure(value);
    });
    few.count = static_cast<std::uint32_t>(scan_cta(few.own, totals_).total);
    const auto warp = static_cast<int>(threadIdx.x / kWarpSize);
    const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
    std::uint64_t sum = 0;
    for (int i = lane; i < kThreads; i += kWarpSize) sum += columns_[warp * kThreads + i];
    sum = sum_over_lanes(sum);
    if (lane == 0) bins_[warp] = sum;
    sync_cta();
    return few;
  }

  // The id at which the running sum of the measures, by id, first reaches goal_of(the sum of all).
  template <class Measure, class GoalOf>
  FOLIO_DEVICE std::int32_t find_in_order(Measure measure, GoalOf goal_of) {
    std::uint64_t* segments = columns_;
    const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
    const std::int32_t num_segments = (row_.size + kSegment - 1) / kSegment;
    for (auto s = static_cast<std::int32_t>(threadIdx.x / kWarpSize); s < num_segments; s += kWarps) {
      const std::int32_t end = (s + 1) * kSegment < row_.size ? (s + 1) * kSegment : row_.size;
      std::uint64_t sum = 0;
      for_values(row_, s * kSegment, end, lane, kWarpSize,
                 [&](std::int32_t id, float value) { sum += measure(id, value); });
      sum = sum_over_lanes(sum);
      if (lane == 0) segments[s] = sum;
    }
    sync_cta();
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
    const std::uint64_t own = thread < num_segments ? segments[thread] : 0;
    const Scan scan = scan_cta(own, totals_);
    const std::uint64_t goal = goal_of(scan.total);
    if (scan.through >= goal && scan.through - own < goal) {
      found_[0] = threadIdx.x;
      found_[1] = goal - (scan.through - own);
    }
    sync_cta();
    const std::int32_t id = static_cast<std::int32_t>(found_[0]) * kSegment + 2 * thread;
    const std::uint64_t rest = found_[1];
    const auto at = [&](std::int32_t i) { return i < row_.size ? measure(i, row_.values[i]) : 0; };
    return first_of_pairs(
        at(id), at(id + 1), [rest](std::uint64_t) { return rest; }, [id](int i) { return id + i; });
  }

  // Every thread gives two neighbouring values: which(0 or 1) of the one at which the running sum reaches goal_of(the
  // sum of all).
  template <class GoalOf, class Which>
  FOLIO_DEVICE std::int32_t first_of_pairs(std::uint64_t first, std::uint64_t second, GoalOf goal_of, Which which) {
    sync_cta();  // totals_ and found_ are free
    const Scan scan = scan_cta(first + second, totals_);
    const std::uint64_t goal = goal_of(scan.total);
    const std::uint64_t before = scan.through - first - second;
    if (scan.through >= goal && before < goal) {
      found_[0] = static_cast<std::uint32_t>(which(before + first >= goal ? 0 : 1));
    }
    sync_cta();
    return static_cast<std::int32_t>(found_[0]);
  }

  // `kept` of the ids that rank first, of them those that weigh `goal` together (0: goal from top_p), and one of these.
  FOLIO_DEVICE std::int32_t choose_from_list(const Few& few, int kept, std::uint64_t goal) {
    std::uint64_t* list = columns_;  // key << 32 | ~id: larger ranks before
    gather(few, list);
    sort_descending(list, next_power_of_two(static_cast<int>(few.count)));
    const auto pair = static_cast<int>(2 * threadIdx.x);
    const auto weight_at = [&](int i, unsigned key_at) {
      return i < kept ? weigh(key_value(static_cast<std::uint32_t>(list[i] >> key_at))) : 0;
    };
    if (params_.top_p < 1.0F) {
      const auto goal_of = [&](std::uint64_t total) { return goal > 0 ? goal : head_goal(params_.top_p, total); };
      const auto place = [pair](int i) { return pair + i; };
      kept = first_of_pairs(weight_at(pair, 32), weight_at(pair + 1, 32), goal_of, place) + 1;
    }
    // Again, by id: ~id << 32 | key.
    const int size = next_power_of_two(kept);
    for (int i = pair; i < pair + 2; ++i) {
      if (i < size) list[i] = i < kept ? list[i] << 32U | list[i] >> 32U : 0;
    }
    sort_descending(list, size);
    const auto goal_of = [&](std::uint64_t total) { return draw_goal(params_.uniform, total); };
    const auto id_at = [&](int i) {
      return static_cast<std::int32_t>(~static_cast<std::uint32_t>(list[pair + i] >> 32U));
    };
    return first_of_pairs(weight_at(pair, 0), weight_at(pair + 1, 0), goal_of, id_at);
  }

  // Every thread's ids in a piece of their own; zeros up to the next power of two.
  FOLIO_DEVICE void gather(const Few& few, std::uint64_t* list) {
    auto at = static_cast<int>(scan_cta(few.own, totals_).through - few.own);
    for_kept([&](std::int32_t id, float value) {
      const std::uint32_t key = order_key(value);
      if (key >= few.low) list[at++] = std::uint64_t{key} << 32U | ~static_cast<std::uint32_t>(id);
    });
    const auto count = static_cast<int>(few.count);
    const int size = next_power_of_two(count);
    for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) list[i] = 0;
  }

  const LogitRow row_;
  const SampleRow params_;
  const float max_;
  const std::uint32_t top_;  // the largest key
  std::uint32_t last_key_;   // the cut: what it keeps last
  std::int32_t last_id_ = std::numeric_limits<std::int32_t>::max();
  std::uint64_t* columns_;  // [kBins][kThreads]; or the segments' sums, or the list
  std::uint64_t* bins_;
  std::uint64_t* totals_;
  std::uint64_t* found_;
};

// One CTA a row.
FOLIO_KERNEL(kThreads) sample_rows_kernel(SampleWork work) {
  SharedArena arena;
  const SampleRow params = work.rows.rows[blockIdx.x];
  Best best{-INFINITY, -1};
  if (params.logit_row >= 0) {
    const Best* of_slices = work.best + blockIdx.x * static_cast<unsigned>(work.num_slices);
    for (auto s = static_cast<std::int32_t>(threadIdx.x % kWarpSize); s < work.num_slices; s += kWarpSize) {
      best = better(best, of_slices[s]);
    }
    best = best_of_lanes(best);
  }
  std::int32_t id = best.id;
  // An infinite maximum leaves no differences to weigh.
  if (id >= 0 && params.temperature > 0.0F && best.value <= FLT_MAX) {
    id = RowSampler(arena, logit_row(work.rows, params.logit_row), params, best.value).sample();
  }
  if (threadIdx.x == 0) work.rows.ids[blockIdx.x] = id;
}

std::int32_t slices_of(std::int32_t vocab_size) {
  return (vocab_size + kSlice - 1) / kSlice;
}

}  // namespace

bool samples_on_device(const SampleRequest& request, std::int32_t vocab_size) {
  const SamplingParams& params = *request.params;
  return vocab_size <= kMaxSampledVocab && request.masked.empty() && params.logit_bias.empty() &&
         params.repetition_penalty == 1.0F && params.presence_penalty == 0.0F && params.frequency_penalty == 0.0F;
}

SampleRow make_sample_row(const SampleRequest& request, std::int32_t vocab_size) {
  FOLIO_CHECK(samples_on_device(request, vocab_size), "a row that is the host's to sample");
  const SamplingParams& params = *request.params;
  SampleRow row;
  row.logit_row = request.logit_row;
  const bool greedy = params.top_k == 1 || !(params.temperature >= std::numeric_limits<float>::min());
  row.temperature = greedy ? 0.0F : std::min(params.temperature, std::numeric_limits<float>::max());
  row.top_k = params.top_k < vocab_size ? std::max(params.top_k, 0) : 0;
  row.top_p = params.top_p;
  row.min_p = std::clamp(params.min_p, 0.0F, 1.0F);  // the best weighs 1 and always stays
  row.uniform = uniform_random(params.seed, request.sequence_index, request.position);
  return row;
}

std::size_t sample_workspace_bytes(std::int32_t num_rows, std::int32_t vocab_size) {
  return sizeof(Best) * static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(slices_of(vocab_size));
}

void sample_rows(const SampleRows& work, std::int32_t num_rows, cudaStream_t stream) {
  FOLIO_CHECK(work.vocab_size > 0 && work.vocab_size <= kMaxSampledVocab, "a vocabulary to sample from");
  const std::int32_t num_slices = slices_of(work.vocab_size);
  const SampleWork all{work, num_slices, static_cast<Best*>(work.workspace)};
  const auto rows = static_cast<unsigned>(num_rows);
  const dim3 slices(static_cast<unsigned>(num_slices), rows);
  launch("best of logits", find_best_kernel, {slices, kSliceThreads, sizeof(Best) * kSliceThreads / kWarpSize, stream},
         all);
  launch("sampling", sample_rows_kernel, {dim3(rows), kThreads, RowSampler::kSharedBytes, stream}, all);
}

}  // namespace folio::cuda
