// The operations of a decoder on one device, fused as a device wants them: models call only these, so that fusing more
// changes no model file. Activations are float rows, [num_tokens][columns] of the step's tokens, in memory of the
// backend. One thread (the engine's) calls; a backend uses its own workers inside. The numerics contract
// (docs/numerics.md) holds for every operation: a row's result is a function of that row, the weights and the cached
// K/V of its own sequence.
//
// A step is begin_step(), its operations, end_step(), and later collect(). An operation may return before it is done:
// what it was given on the host it has read by then, and what it makes is in memory of the backend, which only the
// backend's own operations read. Operations run in the order of their calls, also of different steps. Results come out
// at one place, collect(). A step whose operation throws is over: the next begin_step() forgets it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/step_batch.h"

namespace folio {

// A weight matrix in the layout that the backend's matmul wants: [columns][depth] of the file, out = x * W^T.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;
  std::int32_t depth() const { return depth_; }      // length of an input row
  std::int32_t columns() const { return columns_; }  // length of an output row

 protected:
  WeightMatrix(std::int32_t depth, std::int32_t columns) : depth_(depth), columns_(columns) {}

 private:
  std::int32_t depth_;
  std::int32_t columns_;
};

// Pointers to weights and biases are those of load_vector.
struct Norm {
  const float* weight = nullptr;  // null: no norm
  float epsilon = 0.0F;
};

struct Projection {
  const WeightMatrix* matrix = nullptr;
  const float* bias = nullptr;  // [columns] or null
  float* out = nullptr;         // [num_tokens][columns]
};

struct AttentionShape {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;  // divides num_heads; query head h reads K/V head h / (num_heads / num_kv_heads)
  std::int32_t head_dim = 0;
};

// Rotary embedding: Su et al., arXiv:2104.09864. Angle of pair i at position p: p * inverse_frequencies[i].
struct Rope {
  std::int32_t rotary_dim = 0;                 // even, at most head_dim
  bool interleaved = false;                    // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  const float* inverse_frequencies = nullptr;  // [rotary_dim / 2], of load_vector
};

enum class Activation : std::uint8_t { kSilu, kGelu };

// Logits of rows of a step, [rows][vocab_size] floats in memory of the backend (read_logits); valid until the next are
// computed.
struct Logits {
  float* data = nullptr;
  std::int32_t rows = 0;
  std::int32_t vocab_size = 0;
};

// The KV cache that a backend owns, in its own layout.
struct KvCacheSize {
  std::int32_t num_blocks = 0;  // usable; ids are 1..num_blocks
  std::int32_t block_size = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_per_token = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int num_threads() const = 0;  // that compute a step; 0 where no host thread does
  // Steps that are worth having between end_step() and collect(): 1 when operations are done as they return, 2 when the
  // device computes one while the host plans the next. Two may be there in any case (kMaxStepsInFlight).
  virtual int depth() const = 0;
  virtual KvCacheSize kv_cache() const = 0;

  // Start-up. The matrix does not need the file afterwards. Throws std::runtime_error naming the tensor.
  virtual std::unique_ptr<WeightMatrix> load_matrix(const GgufTensor& tensor) = 0;
  // Start-up. A copy of these values, which lives as long as the backend.
  virtual const float* load_vector(std::span<const float> values) = 0;
  // Memory for activations, [floats], valid until the next call with the same slot; contents are lost when it grows.
  virtual float* activations(int slot, std::size_t floats) = 0;

  // Once before a step's other operations: block copies, the step's angles and work plan, tokens that are samples of
  // the step ended last. `ropes` are the step's tables.
  virtual void begin_step(const StepBatch& batch, std::span<const Rope> ropes) = 0;

  // x[t] = scale * row tokens[t] of the table.
  virtual void embed(const WeightMatrix& table, float scale, float* x) = 0;
  // outs = norm(x) * W^T + bias: the projections that share an input.
  virtual void norm_project(const float* x, Norm norm, std::span<const Projection> projections) = 0;
  // Per head: optional norm of q and k, rotation by ropes[rope]; q scaled by query_scale; k and v written to the
  // tokens' slots.
  virtual void rope_write_kv(int layer, int rope, Norm q_norm, Norm k_norm, float query_scale, float* q, float* k,
                             const float* v) = 0;
  // out[t] = attention of q[t] over the cached keys up to its position, the last `window` of them if window > 0.
  virtual void attend(int layer, std::int32_t window, const float* q, float* out) = 0;
  // x += norm(in * W^T); norm.weight may be null.
  virtual void project_add(const float* in, const WeightMatrix& matrix, Norm norm, float* x) = 0;
  // act(norm(x) * gate^T) * (norm(x) * up^T): stays with the backend, in the form that `down` wants, for down_add.
  virtual void gate_up(const float* x, Norm norm, const WeightMatrix& gate, const WeightMatrix& up,
                       Activation activation, const WeightMatrix& down) = 0;
  // x += norm(gated * down^T); norm.weight may be null. After gate_up with the same `down`.
  virtual void down_add(const WeightMatrix& down, Norm norm, float* x) = 0;
  // norm(x[row]) * W^T for each of these rows, in memory that the next call uses again.
  virtual Logits logits(const float* x, Norm norm, const WeightMatrix& matrix, std::span<const std::int32_t> rows) = 0;
  // Row i of the logits scores scores[i]. What a step's calls score is collected one after the other.
  virtual void score(const Logits& logits, std::span<const ScoreRequest> scores) = 0;
  // At most once a step, after its scores.
  virtual void sample(const Logits& logits, std::span<const SampleRequest> samples) = 0;
  virtual void end_step() = 0;

  // Waits for the oldest step that was ended and not collected; as many as were sampled and scored. Throws what failed
  // in it, or DeviceLost: that step counts as collected.
  virtual void collect(std::span<SampledToken> samples, std::span<SampledToken> scores) = 0;
  // One row of the logits, for tests and measurements: waits for them.
  virtual void read_logits(const Logits& logits, std::int32_t row, std::span<float> out) = 0;
};

}  // namespace folio
