// What a pass of a model costs at least, worked out from its configuration and its file: operations (a multiplication
// and an addition are two) of the matrix products and of attention, and bytes of memory, each read or written once.
// Norms, activations and rotations are left out: below one per cent of any model's work.
#pragma once
#include <cstdint>
#include <vector>

#include "bench/machine_peaks.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/decoder_config.h"
#include "engine/model/load_model.h"

namespace folio::bench {

struct PassCost {
  double matrix_ops = 0;
  double attention_ops = 0;
  double weight_bytes = 0;
  double kv_bytes = 0;  // read by attention, and written

  double ops() const { return matrix_ops + attention_ops; }
  double bytes() const { return weight_bytes + kv_bytes; }
  double intensity() const { return ops() / bytes(); }  // operations a byte
};

class PassCosts {
 public:
  PassCosts(const GgufFile& file, const ModelInfo& info);

  // Tokens `first` to `first + count - 1` of each of `num_sequences` in one pass, those before them from the cache, and
  // logits of each one's last.
  PassCost pass(std::int64_t first, std::int64_t count, std::int64_t num_sequences = 1) const;
  double kv_bytes_per_token() const { return kv_bytes_per_layer_ * static_cast<double>(config_.num_layers); }
  double weight_bytes() const { return layer_bytes_ + output_bytes_; }
  const DecoderConfig& config() const { return config_; }

 private:
  DecoderConfig config_;
  double layer_bytes_ = 0;         // of the layers' tensors in the file
  double output_bytes_ = 0;        // of the matrix that gives logits
  double kv_bytes_per_layer_ = 0;  // and token
};

// Whether a pass is limited by computing or by memory, on a machine that does both at once at its peaks: the "roofline"
// of S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009. Weights of integers are multiplied at the int8 peak
// where the CPU has one, attention at the better float peak.
class Roofline {
 public:
  Roofline(const MachinePeaks& peaks, bool integer_weights);

  double compute_s(const PassCost& cost) const;
  double memory_s(const PassCost& cost) const { return cost.bytes() / read_bytes_; }
  bool is_compute_bound(const PassCost& cost) const { return compute_s(cost) > memory_s(cost); }
  // Operations a byte above which the matrix products alone are compute-bound.
  double ridge() const { return matrix_ops_ / read_bytes_; }

 private:
  double matrix_ops_, attention_ops_, read_bytes_;  // a second
};

// The smallest count in [1, limit] for which `is_compute_bound(count)`, which stays true above it; 0: none.
template <class Predicate>
std::int64_t first_compute_bound(std::int64_t limit, const Predicate& is_compute_bound) {
  if (limit < 1 || !is_compute_bound(limit)) return 0;
  std::int64_t low = 0, high = limit;  // low: not, high: yes
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (is_compute_bound(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace folio::bench
