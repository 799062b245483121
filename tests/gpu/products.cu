// The two products: quantised weights by dp4a, equal to their twin to the bit, and cuBLASLt against double.
#include "engine/kernels/cuda/bf16_weights.h"
#include "engine/kernels/cuda/blas_matmul.h"
#include "tests/gpu/compare.h"
#include "tests/gpu/parts.h"
#include "tests/simt/either_buffer.h"
#include "tests/simt/quant_case.h"

namespace folio::gpu {
namespace {

using cuda::DeviceBuffer;

void check_quant_dot(Report& report, TensorType type, std::mt19937& random) {
  const bool is_wide = tensor_type_info(type).block_elements == 256;
  for (const std::int32_t depth : is_wide ? std::vector{256, 2304, 4352} : std::vector{32, 1056, 4160}) {
    for (const std::int32_t rows : {1, 3, 8}) {
      const cpu::TestTensor t = cpu::make_tensor(type, depth, 37, random);
      const cuda::QuantCaseMatrix matrix(t.tensor);
      cuda::QuantCaseRows x(rows, depth, random);
      check_equal(report,
                  std::string(tensor_type_info(type).name) + " depth " + std::to_string(depth) + " rows " +
                      std::to_string(rows),
                  cuda::device_product(matrix, x), cuda::twin_product(t.tensor, x));
    }
  }
  const cpu::TestTensor t = cpu::make_tensor(type, 768, 5, random);
  const cuda::QuantCaseMatrix matrix(t.tensor);
  DeviceBuffer<__nv_bfloat16> out(t.values.size());
  cuda::bf16_weights(matrix.view, out.data(), nullptr);
  std::vector<float> got;
  std::vector<float> expected;
  for (const __nv_bfloat16 value : out.to_vector()) got.push_back(__bfloat162float(value));
  for (const float value : t.values) expected.push_back(__bfloat162float(__float2bfloat16_rn(value)));
  check_near(report, std::string(tensor_type_info(type).name) + " as bf16", got, expected, 0.0);
}

class BlasCase {
 public:
  BlasCase(std::int32_t rows, std::int32_t columns, std::int32_t depth)
      : shape_{rows, columns, depth},
        x_(random_bf16(rows * depth, 1)),
        weights_(random_bf16(columns * depth, 2)),
        device_x_(x_),
        device_weights_(weights_) {}

  std::vector<float> run(std::int32_t rows, bool deterministic) const {
    int major = 0;
    cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    DeviceBuffer<std::byte> workspace(cuda::blas_workspace_bytes(major));
    cuda::BlasMatmul blas(workspace.data(), cuda::blas_workspace_bytes(major), deterministic);
    DeviceBuffer<float> out(static_cast<std::size_t>(rows * shape_.columns));
    blas.multiply({.x = device_x_.data(),
                   .weights = device_weights_.data(),
                   .out = out.data(),
                   .shape = {rows, shape_.columns, shape_.depth}},
                  nullptr);
    return out.to_vector();
  }
  std::vector<float> reference() const {
    std::vector<float> out;
    for (std::int32_t r = 0; r < shape_.rows; ++r) {
      for (std::int32_t c = 0; c < shape_.columns; ++c) {
        double sum = 0;
        for (std::int32_t k = 0; k < shape_.depth; ++k) {
          sum += static_cast<double>(__bfloat162float(x_[static_cast<std::size_t>(r * shape_.depth + k)])) *
                 static_cast<double>(__bfloat162float(weights_[static_cast<std::size_t>(c * shape_.depth + k)]));
        }
        out.push_back(static_cast<float>(sum));
      }
    }
    return out;
  }

 private:
  static std::vector<__nv_bfloat16> random_bf16(std::int32_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<__nv_bfloat16> values;
    for (std::int32_t i = 0; i < count; ++i) values.push_back(__float2bfloat16_rn(normal(random)));
    return values;
  }

  cuda::MatmulShape shape_;
  std::vector<__nv_bfloat16> x_, weights_;
  DeviceBuffer<__nv_bfloat16> device_x_, device_weights_;
};

void check_blas(Report& report, std::int32_t columns, std::int32_t depth) {
  constexpr std::int32_t kRows = 300;
  const BlasCase work(kRows, columns, depth);
  const std::vector<float> expected = work.reference();
  const std::string name = "cuBLASLt " + std::to_string(columns) + " x " + std::to_string(depth);
  const double allowed = 2e-5 * depth;  // float sums of products near 1
  check_near(report, name, work.run(kRows, false), expected, allowed);
  const std::vector<float> whole = work.run(kRows, true);
  check_near(report, name + " deterministic", whole, expected, allowed);
  // One algorithm without a split of the depth: rows do not see how many they are.
  for (const std::int32_t rows : {1, 8, 33, 129, 256}) {
    check_equal(report, name + " deterministic, " + std::to_string(rows) + " rows of " + std::to_string(kRows),
                work.run(rows, true), std::span(whole).first(static_cast<std::size_t>(rows * columns)));
  }
}

}  // namespace

void check_products(Report& report) {
  std::mt19937 random(7);
  for (const TensorType type : cuda::kQuantTypes) check_quant_dot(report, type, random);
  check_blas(report, 576, 576);
  check_blas(report, 1536, 576);
  check_blas(report, 192, 1536);
  check_blas(report, 320, 4096);
}

}  // namespace folio::gpu
