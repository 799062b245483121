#include "engine/kernels/cuda/blas_matmul.h"

#include <array>
#include <string>

namespace folio::cuda {
namespace {

void check(cublasStatus_t status, const std::string& operation) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw BlasError("cuBLASLt: " + operation + ": " + cublasLtGetStatusName(status) + " (" +
                  cublasLtGetStatusString(status) + ")");
}

std::string name_of(const MatmulShape& shape) {
  return std::to_string(shape.rows) + " rows by a matrix of " + std::to_string(shape.columns) + " x " +
         std::to_string(shape.depth);
}

cublasLtHandle_t make_handle() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting the library");
  return handle;
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a product");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "stating a preference");
}

template <class T>
T get(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written),
        "reading an algorithm's settings");
  return value;
}

}  // namespace

struct BlasMatmul::Call {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;

  Call(const BlasProduct& product, const MatmulShape& shape) {
    const ColumnMajorProduct as = column_major(shape);
    check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    set(&operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (product.bias != nullptr) {
      set(&operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    }
    const auto layout = [](cublasLtMatrixLayoutOpaque_t& of, cudaDataType type, std::int64_t rows, std::int64_t columns,
                           std::int64_t leading) {
      check(cublasLtMatrixLayoutInit(&of, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                     leading),
            "describing a matrix");
    };
    layout(a, CUDA_R_16BF, as.k, as.m, as.lda);
    layout(b, CUDA_R_16BF, as.k, as.n, as.ldb);
    layout(d, CUDA_R_32F, as.m, as.n, as.ldd);
  }
};

BlasMatmul::BlasMatmul(void* workspace, std::size_t workspace_bytes, bool deterministic)
    : handle_(make_handle()), workspace_(workspace), workspace_bytes_(workspace_bytes), deterministic_(deterministic) {}

void BlasMatmul::multiply(const BlasProduct& product, cudaStream_t stream) {
  if (product.shape.rows == 0) return;
  const AlgorithmKey key = algorithm_key(product.shape, product.bias != nullptr, deterministic_);
  auto found = algorithms_.find(key);
  if (found == algorithms_.end()) found = algorithms_.emplace(key, choose(product)).first;
  Call call(product, product.shape);
  const float one = 1.0F;
  const float keep = product.add ? 1.0F : 0.0F;
  check(
      cublasLtMatmul(handle_.get(), &call.operation, &one, product.weights, &call.a, product.x, &call.b, &keep,
                     product.out, &call.d, product.out, &call.d, &found->second, workspace_, workspace_bytes_, stream),
      "multiplying " + name_of(product.shape));
}

// For the bucket's row count: what the library thinks fastest, best first.
cublasLtMatmulAlgo_t BlasMatmul::choose(const BlasProduct& product) const {
  MatmulShape shape = product.shape;
  shape.rows = rows_bucket(shape.rows, deterministic_);
  Call call(product, shape);
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "stating a preference");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes_});
  for (const auto alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(&preference, alignment, std::uint32_t{16});
  }
  if (deterministic_) {
    set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  }
  std::array<cublasLtMatmulHeuristicResult_t, 32> results{};
  int count = 0;
  const std::string operation = "choosing an algorithm for " + name_of(shape);
  check(cublasLtMatmulAlgoGetHeuristic(handle_.get(), &call.operation, &call.a, &call.b, &call.d, &call.d, &preference,
                                       static_cast<int>(results.size()), results.data(), &count),
        operation);
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (usable(result)) return result.algo;
  }
  throw BlasError("cuBLASLt: " + operation + ": none of " + std::to_string(count) + " may be used");
}

bool BlasMatmul::usable(const cublasLtMatmulHeuristicResult_t& found) const {
  if (found.state != CUBLAS_STATUS_SUCCESS) return false;
  const AlgorithmTraits traits{get<std::int32_t>(found.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                               get<std::uint32_t>(found.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                               found.workspaceSize};
  return may_run(traits, workspace_bytes_, deterministic_);
}

}  // namespace folio::cuda
