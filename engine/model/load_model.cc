#include "engine/model/load_model.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "base/thread_pool.h"
#include "engine/kernels/cpu/cpu_backend.h"
#include "engine/kernels/cuda_library.h"
#include "engine/model/decoder_config.h"

namespace folio {
namespace {

KvType kv_type(const std::string& name) {
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  if (name == "int8") return KvType::kInt8;
  if (name == "f32") return KvType::kF32;
  throw std::runtime_error("--kv-dtype " + name + ": expected f16, bf16, int8 or f32; with --device cuda also fp8");
}

std::int32_t context_limit(const GgufFile& file, const DecoderConfig& config, std::int32_t wanted) {
  if (wanted == 0) return config.context_length;
  if (wanted < 2 || wanted > config.context_length) {
    throw std::runtime_error("--max-context " + std::to_string(wanted) + ": " + file.path() + " allows 2 to " +
                             std::to_string(config.context_length));
  }
  return wanted;
}

// Blocks that all sequences can fill at most.
std::int64_t useful_blocks(const ModelOptions& options, std::int32_t max_context) {
  return std::int64_t{(max_context + options.block_size - 1) / options.block_size} * options.max_num_seqs;
}

KvCacheLayout plan_cache(const DecoderConfig& config, const ModelOptions& options, std::int32_t max_context) {
  KvCacheLayout layout;
  layout.num_layers = config.num_layers;
  layout.num_kv_heads = config.attention.num_kv_heads;
  layout.head_dim = config.attention.head_dim;
  layout.block_size = options.block_size;
  layout.type = kv_type(options.kv_dtype);
  constexpr std::int64_t kMaxSlots = std::int64_t{1} << 31;  // slots are 32-bit
  std::int64_t blocks = options.kv_blocks;
  if (blocks == 0) {
    const bool by_default = options.kv_memory_bytes == 0;
    const std::uint64_t bytes = by_default ? available_memory() / 5 * 2 : options.kv_memory_bytes;
    const auto fitting = static_cast<std::int64_t>(bytes / layout.block_bytes()) - 1;  // beside the null block
    blocks = by_default ? std::min(fitting, useful_blocks(options, max_context)) : fitting;
    if (blocks < 1) {
      throw std::runtime_error(
          (by_default ? "the memory this process may use" : "--kv-memory " + std::to_string(bytes) + " bytes") +
          std::string(" is less than two KV blocks of ") + std::to_string(layout.block_bytes()) + " bytes");
    }
  }
  if (blocks < 1 || (blocks + 1) * options.block_size >= kMaxSlots) {
    throw std::runtime_error("KV cache of " + std::to_string(blocks) +
                             " blocks (--kv-blocks, --kv-memory): expected 1 to " +
                             std::to_string(kMaxSlots / options.block_size - 2));
  }
  layout.num_blocks = static_cast<std::int32_t>(blocks);
  return layout;
}

std::unique_ptr<Backend> make_backend(const GgufFile& file, const DecoderConfig& config, const ModelOptions& options,
                                      std::int32_t max_context) {
  if (options.block_size < 16 || options.block_size > 256 || 256 % options.block_size != 0) {
    throw std::runtime_error("--block-size " + std::to_string(options.block_size) +
                             ": expected 16, 32, 64, 128 or 256");
  }
  if (options.device == "cuda") return make_cuda_backend(device_request(file, config, options, max_context));
  if (options.device != "cpu") throw std::runtime_error("--device " + options.device + ": expected cpu or cuda");
  const int num_threads = options.num_threads > 0 ? options.num_threads : available_cores();
  return std::make_unique<cpu::CpuBackend>(options.isa, num_threads, config.attention,
                                           plan_cache(config, options, max_context));
}

std::string main_dtype(const GgufFile& file) {
  std::map<TensorType, std::uint64_t> bytes;
  for (const GgufTensor& tensor : file.tensors()) bytes[tensor.type] += tensor.data.size();
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "none" : tensor_type_info(most->first).name;
}

}  // namespace

DeviceRequest device_request(const GgufFile& file, const DecoderConfig& config, const ModelOptions& options,
                             std::int32_t max_context) {
  DeviceRequest request;
  request.attention = config.attention;
  request.num_layers = config.num_layers;
  request.hidden_size = config.hidden_size;
  request.ff_size = config.ff_size;
  request.vocab_size = config.vocab_size;
  request.max_context = max_context;
  request.max_num_seqs = options.max_num_seqs;
  request.max_batch_tokens = options.max_batch_tokens;
  for (const AttentionKind& kind : config.attentions) {
    if (std::find(request.windows.begin(), request.windows.end(), kind.window) == request.windows.end()) {
      request.windows.push_back(kind.window);
    }
  }
  request.tensors = file.tensors();
  request.kv_cache = {options.kv_dtype, options.block_size, options.kv_blocks, options.kv_memory_bytes,
                      useful_blocks(options, max_context)};
  request.deterministic = options.deterministic;
  return request;
}

LoadedModel load_model(const GgufFile& file, const ModelOptions& options) {
  DecoderConfig config = read_config(file);
  const std::int32_t max_context = context_limit(file, config, options.max_context);
  check_weights(file, config);
  std::unique_ptr<Backend> backend = make_backend(file, config, options, max_context);
  const KvCacheSize cache = backend->kv_cache();

  LoadedModel loaded;
  loaded.info = {.architecture = config.architecture,
                 .name = std::string(file.find_string("general.name").value_or("")),
                 .dtype = main_dtype(file),
                 .isa = backend->name(),
                 .num_threads = backend->num_threads(),
                 .kv_dtype = options.kv_dtype,
                 .block_size = cache.block_size,
                 .num_blocks = cache.num_blocks,
                 .kv_bytes = cache.bytes,
                 .kv_bytes_per_token = cache.bytes_per_token,
                 .max_context = max_context,
                 .vocab_size = config.vocab_size};
  if (loaded.info.name.empty()) loaded.info.name = file.path().substr(file.path().find_last_of('/') + 1);
  loaded.model = std::make_unique<Decoder>(file, std::move(config), max_context, std::move(backend));
  return loaded;
}

}  // namespace folio
