// The operations of a decoder on one device, fused as a device wants them: models call only these, so that fusing more
// changes no model file. Activations are float rows, [num_tokens][columns] of the step's tokens, in memory of the
// backend. One thread (the engine's) calls; a backend uses its own workers inside. The numerics contract
// (docs/numerics.md) holds for every operation: a row's result is a function of that row, the weights and the cached
// K/V of its own sequence.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/kv_cache.h"
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
  std::span<const float> inverse_frequencies;  // [rotary_dim / 2]; outlives the backend
};

enum class Activation : std::uint8_t { kSilu, kGelu };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;

  // Start-up. The matrix does not need the file afterwards. Throws std::runtime_error naming the tensor.
  virtual std::unique_ptr<WeightMatrix> load_matrix(const GgufTensor& tensor) = 0;
  // Memory for activations, [floats], valid until the next call with the same slot; contents are lost when it grows.
  virtual float* activations(int slot, std::size_t floats) = 0;

  // Once before a step's other operations: block copies, the step's angles and work plan. `ropes` are the step's
  // tables.
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
  virtual void sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) = 0;
  // Row i of the logits scores scores[i].
  virtual void score(const Logits& logits, std::span<const ScoreRequest> scores, std::span<SampledToken> out) = 0;
};

}  // namespace folio
