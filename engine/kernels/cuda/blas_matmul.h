// Products of many rows through cuBLASLt, bf16 with float accumulation. One thread at a time.
#pragma once
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>

#include "engine/kernels/cuda/blas_plan.h"

namespace folio::cuda {

class BlasError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;  // "cuBLASLt: choosing an algorithm for 4096 x 14336: NAME (what it means)"
};

// out[r][c] (+)= x[r] * weights[c] + bias[c]. On the device, at multiples of 16 bytes.
struct BlasProduct {
  const __nv_bfloat16* x = nullptr;        // [rows][depth]
  const __nv_bfloat16* weights = nullptr;  // [columns][depth]
  const float* bias = nullptr;             // [columns] or null
  float* out = nullptr;                    // [rows][columns]
  MatmulShape shape;
  bool add = false;  // to what is there
};

class BlasMatmul {
 public:
  // `workspace`: on the device, blas_workspace_bytes() or more at a multiple of 256; used by every product, so all run
  // on one stream. `deterministic`: one algorithm without a split of the depth for each weight shape, whatever the
  // number of rows. Throws BlasError.
  BlasMatmul(void* workspace, std::size_t workspace_bytes, bool deterministic);

  // Starts one product (none without rows). The first of its kind chooses an algorithm, which takes the host some 100
  // us and the device nothing: so it may be called while a graph is captured. Throws BlasError.
  void multiply(const BlasProduct& product, cudaStream_t stream);

 private:
  struct Call;  // the library's descriptors of one product
  struct DestroyHandle {
    void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
  };

  cublasLtMatmulAlgo_t choose(const BlasProduct& product) const;
  bool usable(const cublasLtMatmulHeuristicResult_t& found) const;

  std::unique_ptr<cublasLtContext, DestroyHandle> handle_;
  void* workspace_;
  std::size_t workspace_bytes_;
  bool deterministic_;
  std::map<AlgorithmKey, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace folio::cuda
