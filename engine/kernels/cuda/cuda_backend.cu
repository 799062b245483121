#include "engine/kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "engine/kernels/cuda/block_copy.h"
#include "engine/kernels/cuda/memory_plan.h"
#include "engine/kernels/cuda/rope_kv.h"
#include "engine/kernels/cuda/row_ops.h"

namespace folio::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634F;  // attention weighs by powers of two

const DeviceMatrix& on_device(const WeightMatrix& matrix) {
  return static_cast<const DeviceMatrix&>(matrix);
}

DeviceNorm on_device(Norm norm) {
  return {norm.weight, norm.epsilon};
}

// One new token of each sequence, whose next one is sampled.
bool is_decode(const StepBatch& batch) {
  const auto tokens = static_cast<std::size_t>(batch.num_tokens());
  return batch.context_len.size() == tokens && batch.logit_rows.size() == tokens && batch.samples.size() == tokens &&
         batch.scores.empty();
}

}  // namespace

CudaBackend::CudaBackend(const DeviceRequest& request, DeviceFacts device, bool use_graphs)
    : sizes_(step_sizes(request)),
      use_graphs_(use_graphs),
      keep_quant_(!request.deterministic),
      shape_of_heads_(request.attention),
      name_("cuda " + device.name),
      loaders_(available_cores()),
      setups_(attention_setups(request, device.num_sms)),
      input_(sizes_.tokens, sizes_.widest_input, "a step's rows"),
      gated_(sizes_.tokens, sizes_.ff_size, "a step's rows"),
      products_(request.deterministic, device.compute_major, stream_) {
  const StepShape largest = largest_shape();
  array_bytes_ = largest_step_bytes(largest, sizes_.block_ids, sizes_.logit_rows);
  const auto floats = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns) * sizeof(float);
  };
  const std::string rows = "a step's rows";
  arrays_ = DeviceMemory(array_bytes_, rows);
  sampled_ = DeviceMemory(floats(sizes_.logit_rows, 1), rows);
  sample_workspace_ = DeviceMemory(sample_workspace_bytes(sizes_.logit_rows, sizes_.vocab_size), rows);
  projected_ = DeviceMemory(floats(sizes_.tokens, sizes_.hidden_size), rows);
  gate_ = DeviceMemory(floats(sizes_.tokens, sizes_.ff_size), rows);
  up_ = DeviceMemory(floats(sizes_.tokens, sizes_.ff_size), rows);
  logits_ = DeviceMemory(floats(sizes_.logit_rows, sizes_.vocab_size), "logits");
  angles_ = DeviceMemory(floats(sizes_.tokens, shape_of_heads_.head_dim) * setups_.size(), rows);
  std::size_t partials = 0;
  for (std::size_t i = 0; i < setups_.size(); ++i) {
    partials = std::max(partials, attention_workspace_floats(setups_[i], largest.plans[i]));
  }
  partials_ = DeviceMemory(std::max<std::size_t>(partials, 1) * sizeof(float), "partial results of attention");
  for (auto& flight : flights_) flight = std::make_unique<Flight>(array_bytes_, sizes_.logit_rows);
  layout_ = plan_kv_cache(request, device);
  cache_ = DeviceMemory(layout_.total_bytes(), "the KV cache");
  check(cudaMemsetAsync(cache_.get(), 0, cache_.bytes(), stream_.get()), "clearing the KV cache");
  plans_.resize(setups_.size());
  stream_.wait();
}

// What was started still reads and writes what is freed next.
CudaBackend::~CudaBackend() {
  graphs_.abandon(stream_);
  cudaStreamSynchronize(stream_.get());
}

KvCacheSize CudaBackend::kv_cache() const {
  return {layout_.num_blocks, layout_.block_size, layout_.total_bytes(),
          layout_.block_bytes_per_layer() * static_cast<std::size_t>(layout_.num_layers) /
              static_cast<std::size_t>(layout_.block_size)};
}

std::unique_ptr<WeightMatrix> CudaBackend::load_matrix(const GgufTensor& tensor) {
  return std::make_unique<DeviceMatrix>(tensor, keep_quant_, loaders_, stream_);
}

const float* CudaBackend::load_vector(std::span<const float> values) {
  DeviceMemory& memory = vectors_.emplace_back(values.size_bytes(), "a vector of weights");
  stream_.upload(memory.get(), values.data(), values.size_bytes());
  stream_.wait();
  return memory.get<float>();
}

// For the largest step at once: a graph has these addresses in it.
float* CudaBackend::activations(int slot, std::size_t floats) {
  DeviceMemory& memory = activations_[slot];
  const std::size_t columns = floats / static_cast<std::size_t>(num_tokens_);
  const std::size_t bytes = columns * static_cast<std::size_t>(sizes_.tokens) * sizeof(float);
  if (memory.bytes() == 0) memory = DeviceMemory(bytes, "a step's rows");
  FOLIO_CHECK(memory.bytes() >= bytes, "a slot's rows have one width");
  return memory.get<float>();
}

StepShape CudaBackend::largest_shape() const {
  StepShape shape{sizes_.tokens, sizes_.logit_rows, sizes_.tokens, sizes_.logit_rows, {}};
  for (const AttentionSetup& setup : setups_) {
    shape.plans.push_back(attention_bounds(setup, sizes_.tokens, std::min(sizes_.tokens, sizes_.logit_rows)));
  }
  return shape;
}

// Sequences of one token, more of them than there are do nothing.
StepShape CudaBackend::decode_shape(std::int32_t sequences) const {
  StepShape shape{sequences, sequences, 0, sequences, {}};
  for (const AttentionSetup& setup : setups_) shape.plans.push_back(decode_bounds(setup, sequences));
  return shape;
}

StepShape CudaBackend::shape_of(const StepBatch& batch) const {
  StepShape shape{batch.num_tokens(),
                  static_cast<std::int32_t>(batch.logit_rows.size()),
                  static_cast<std::int32_t>(batch.scores.size()),
                  static_cast<std::int32_t>(batch.samples.size()),
                  {}};
  for (const AttentionPlan& plan : plans_) shape.plans.push_back(plan.extent());
  return shape;
}

void CudaBackend::begin_step(const StepBatch& batch, std::span<const Rope> ropes) {
  if (is_open_) {  // the last step failed on its way, and the device may still read its arrays
    graphs_.abandon(stream_);
    stream_.wait();
  }
  is_open_ = true;
  pending_ = {};
  num_scored_ = 0;
  num_tokens_ = batch.num_tokens();
  FOLIO_CHECK(num_tokens_ <= sizes_.tokens && batch.logit_rows.size() <= static_cast<std::size_t>(sizes_.logit_rows),
              "a step is no larger than was said at start");
  for (std::size_t i = 0; i < plans_.size(); ++i) plan_attention(batch, setups_[i], plans_[i]);
  const bool as_graph = use_graphs_ && is_decode(batch);
  shape_ = as_graph ? decode_shape(padded_sequences(num_tokens_)) : shape_of(batch);
  at_ = StepLayout(shape_);
  upload(batch);
  copy_blocks_of(batch);
  if (as_graph) graphs_.begin(shape_.tokens, stream_);
  if (!is_replaying()) make_step_angles(ropes);
}

void CudaBackend::upload(const StepBatch& batch) {
  sample_rows_.clear();
  for (const SampleRequest& sample : batch.samples) {
    const bool here = samples_on_device(sample, sizes_.vocab_size);
    sample_rows_.push_back(here ? make_sample_row(sample, sizes_.vocab_size) : SampleRow());
  }
  Flight& flight = flight_of(num_ended_);
  flight.results.begin();
  const std::size_t bytes = at_.bytes(batch);
  FOLIO_CHECK(bytes <= array_bytes_, "a step's arrays fit");
  write_step(batch, plans_, sample_rows_, shape_, at_, flight.arrays.get<std::byte>());
  stream_.upload(arrays_.get(), flight.arrays.get(), bytes);
}

// In their order: one that touches a block written by one before begins a launch of its own.
void CudaBackend::copy_blocks_of(const StepBatch& batch) {
  const auto* copies = on_step<int2>(at_.copies(batch));
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= batch.copies.size(); ++i) {
    const bool cut = i == batch.copies.size() ||
                     std::any_of(batch.copies.begin() + static_cast<std::ptrdiff_t>(begin),
                                 batch.copies.begin() + static_cast<std::ptrdiff_t>(i), [&](const BlockCopy& before) {
                                   const BlockCopy& copy = batch.copies[i];
                                   return before.to == copy.from || before.to == copy.to || before.from == copy.to;
                                 });
    if (!cut) continue;
    copy_blocks(layout_, cache_.get(), copies + begin, static_cast<std::int32_t>(i - begin), stream_.get());
    begin = i;
  }
}

void CudaBackend::make_step_angles(std::span<const Rope> ropes) {
  FOLIO_CHECK(ropes.size() <= setups_.size(), "angles have room for a table a window");
  ropes_.assign(ropes.begin(), ropes.end());
  for (std::size_t i = 0; i < ropes.size(); ++i) {
    make_angles({on_step<std::int32_t>(at_.positions), ropes[i].inverse_frequencies, ropes[i].rotary_dim / 2,
                 angles_of(static_cast<int>(i))},
                shape_.tokens, stream_.get());
  }
}

float2* CudaBackend::angles_of(int rope) const {
  return angles_.get<float2>() + std::ptrdiff_t{rope} * sizes_.tokens * (shape_of_heads_.head_dim / 2);
}

void CudaBackend::embed(const WeightMatrix& table, float scale, float* x) {
  if (is_replaying()) return;
  embed_rows({on_device(table).bf16(), table.depth(), table.columns(), scale, on_step<std::int32_t>(at_.tokens),
              sampled_.get<std::int32_t>(), x},
             shape_.tokens, stream_.get());
}

// `out` = norm(x) with what waited to be added to x.
void CudaBackend::norm_into(const float* x, Norm norm, std::int32_t columns, const RowOutputs& out) {
  FOLIO_CHECK(pending_.x == nullptr || pending_.x == x, "the rows that are added to are the next to be read");
  NormRows work;
  work.columns = columns;
  work.x = const_cast<float*>(x);  // written only with what waits
  if (pending_.x != nullptr) {
    work.projected = projected_.get<float>();
    work.projected_norm = pending_.norm;
  }
  work.norm = on_device(norm);
  work.out = out;
  norm_rows(work, shape_.tokens, stream_.get());
  pending_ = {};
}

void CudaBackend::norm_project(const float* x, Norm norm, std::span<const Projection> projections) {
  if (is_replaying()) return;
  std::vector<const DeviceMatrix*> matrices;
  std::vector<Product> products;
  for (const Projection& projection : projections) {
    matrices.push_back(&on_device(*projection.matrix));
    products.push_back({matrices.back(), projection.bias, projection.out});
  }
  const RowOutputs in = products_.forms(input_, shape_.tokens, matrices);
  norm_into(x, norm, matrices.front()->depth(), in);
  products_.multiply(in, shape_.tokens, products, false);
}

void CudaBackend::rope_write_kv(int layer, int rope, Norm q_norm, Norm k_norm, float query_scale, float* q, float* k,
                                const float* v) {
  if (is_replaying()) return;
  const Rope& spec = ropes_[static_cast<std::size_t>(rope)];
  RopeWriteKv work;
  work.layout = layout_;
  work.cache = cache_.get();
  work.layer = layer;
  work.num_heads = shape_of_heads_.num_heads;
  work.head_dim = shape_of_heads_.head_dim;
  work.rotary_dim = spec.rotary_dim;
  work.interleaved = spec.interleaved;
  work.angles = angles_of(rope);
  work.slots = on_step<std::int32_t>(at_.slots);
  work.q_norm = on_device(q_norm);
  work.k_norm = on_device(k_norm);
  work.query_scale = query_scale * kLog2E;
  work.q = q;
  work.k = k;
  work.v = v;
  folio::cuda::rope_write_kv(work, shape_.tokens, stream_.get());
}

void CudaBackend::attend(int layer, std::int32_t window, const float* q, float* out) {
  if (is_replaying()) return;
  const auto setup = std::find_if(setups_.begin(), setups_.end(), [&](const auto& s) { return s.window == window; });
  FOLIO_CHECK(setup != setups_.end(), "a layer's window was named at start");
  const auto i = static_cast<std::size_t>(setup - setups_.begin());
  AttentionWork work;
  work.layout = layout_;
  work.cache = cache_.get<const char>();
  work.layer = layer;
  work.num_heads = shape_of_heads_.num_heads;
  work.head_dim = shape_of_heads_.head_dim;
  work.window = window;
  work.fold_keys = plans_[i].fold_keys;
  work.q = q;
  work.out = out;
  work.positions = on_step<std::int32_t>(at_.positions);
  work.block_ids = on_step<std::int32_t>(at_.block_ids);
  use_plan(work, on_step<std::int32_t>(at_.plans[i]), shape_.plans[i], partials_.get<float>());
  folio::cuda::attend(work, shape_.plans[i], stream_.get());
}

void CudaBackend::project_add(const float* in, const WeightMatrix& matrix, Norm norm, float* x) {
  if (is_replaying()) return;
  const DeviceMatrix* only = &on_device(matrix);
  const RowOutputs rows = products_.forms(input_, shape_.tokens, {&only, 1});
  FOLIO_CHECK(pending_.x == nullptr, "one addition waits at a time");
  norm_into(in, {}, matrix.depth(), rows);
  add_product(rows, matrix, norm, x);
}

// x += norm(in * matrix^T): at once, or with the next norm of x if this one has a norm.
void CudaBackend::add_product(const RowOutputs& in, const WeightMatrix& matrix, Norm norm, float* x) {
  const bool at_once = norm.weight == nullptr;
  const Product product{&on_device(matrix), nullptr, at_once ? x : projected_.get<float>()};
  products_.multiply(in, shape_.tokens, {&product, 1}, at_once);
  if (!at_once) pending_ = {x, on_device(norm)};
}

void CudaBackend::gate_up(const float* x, Norm norm, const WeightMatrix& gate, const WeightMatrix& up,
                          Activation activation, const WeightMatrix& down) {
  if (is_replaying()) return;
  const DeviceMatrix* const matrices[] = {&on_device(gate), &on_device(up)};
  const RowOutputs in = products_.forms(input_, shape_.tokens, matrices);
  norm_into(x, norm, gate.depth(), in);
  const Product products[] = {{matrices[0], nullptr, gate_.get<float>()}, {matrices[1], nullptr, up_.get<float>()}};
  products_.multiply(in, shape_.tokens, products, false);
  const DeviceMatrix* next = &on_device(down);
  gated_rows_ = products_.forms(gated_, shape_.tokens, {&next, 1});
  gate_rows({gate_.get<float>(), up_.get<float>(), gate.columns(), activation, gated_rows_}, shape_.tokens,
            stream_.get());
}

void CudaBackend::down_add(const WeightMatrix& down, Norm norm, float* x) {
  if (is_replaying()) return;
  add_product(gated_rows_, down, norm, x);
}

// A step asks for those of its scores, in order, and then for those of its logit rows: all of them were uploaded.
Logits CudaBackend::logits(const float* x, Norm norm, const WeightMatrix& matrix, std::span<const std::int32_t> rows) {
  const Logits result{logits_.get<float>(), static_cast<std::int32_t>(rows.size()), matrix.columns()};
  const bool scored = num_scored_ < shape_.score_rows;
  const std::size_t from =
      scored ? at_.score_rows + sizeof(std::int32_t) * static_cast<std::size_t>(num_scored_) : at_.logit_rows;
  const std::int32_t num_rows = scored ? result.rows : shape_.logit_rows;
  if (scored) num_scored_ += result.rows;
  if (is_replaying() || num_rows == 0) return result;
  if (pending_.x != nullptr) norm_into(x, {}, matrix.depth(), {});
  const DeviceMatrix* only = &on_device(matrix);
  NormRows work;
  work.columns = matrix.depth();
  work.x = const_cast<float*>(x);  // nothing is added
  work.rows = on_step<std::int32_t>(from);
  work.norm = on_device(norm);
  work.out = products_.forms(input_, num_rows, {&only, 1});
  norm_rows(work, num_rows, stream_.get());
  const Product product{only, nullptr, result.data};
  products_.multiply(work.out, num_rows, {&product, 1}, false);
  return result;
}

void CudaBackend::score(const Logits& logits, std::span<const ScoreRequest> scores) {
  flight_of(num_ended_).results.score({logits.data, logits.vocab_size}, scores, stream_);
}

void CudaBackend::sample(const Logits& logits, std::span<const SampleRequest> samples) {
  if (!is_replaying() && logits.vocab_size <= kMaxSampledVocab) {  // else all rows are the host's
    sample_rows({logits.data, logits.vocab_size, on_step<SampleRow>(at_.samples), sample_workspace_.get(),
                 sampled_.get<std::int32_t>()},
                shape_.samples, stream_.get());
  }
  graphs_.end(stream_);
  flight_of(num_ended_).results.sample({logits.data, logits.vocab_size}, samples, sampled_.get<TokenId>(), stream_);
}

void CudaBackend::end_step() {
  flight_of(num_ended_).results.end(stream_);
  ++num_ended_;
  is_open_ = false;
}

void CudaBackend::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  FOLIO_CHECK(num_collected_ < num_ended_, "a step ends before it is collected");
  if (is_open_) graphs_.abandon(stream_);  // the step behind this one failed on its way
  flight_of(num_collected_++).results.collect(samples, scores);
}

void CudaBackend::read_logits(const Logits& logits, std::int32_t row, std::span<float> out) {
  stream_.download(out.data(), logits.data + std::ptrdiff_t{row} * logits.vocab_size, out.size_bytes());
  stream_.wait();
}

}  // namespace folio::cuda
