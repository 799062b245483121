// cuBLASLt for real where there is a GPU; elsewhere that its absence is said.
#include "engine/kernels/cuda/blas_matmul.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "engine/kernels/cuda/cuda_error.h"

namespace folio::cuda {
namespace {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::span<const T> values) : size_(values.size()) {
    check(cudaMalloc(&data_, values.size_bytes()), "cudaMalloc");
    check(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "copy to the device");
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(std::span<const T>(values)) {}
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() { return static_cast<T*>(data_); }
  std::vector<T> to_vector() const {
    std::vector<T> values(size_);
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
    return values;
  }

 private:
  std::size_t size_;
  void* data_ = nullptr;
};

std::vector<__nv_bfloat16> random_bf16(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> values(count);
  for (auto& value : values) value = __float2bfloat16_rn(normal(random));
  return values;
}

TEST(BlasMatmul, WithoutADeviceItSaysWhatItWasDoing) {
  if (has_device()) GTEST_SKIP() << "this machine has a GPU";
  try {
    const BlasMatmul blas(nullptr, 0, false);
    FAIL() << "the library started without a device";
  } catch (const BlasError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("cuBLASLt: starting the library: CUBLAS_STATUS_"));
  }
}

class BlasProducts : public testing::Test {
 protected:
  static constexpr std::int32_t kColumns = 320;
  static constexpr std::int32_t kDepth = 576;
  static constexpr std::int32_t kMostRows = 300;

  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no GPU on this machine";
    std::mt19937 random(3);
    x_ = random_bf16(std::size_t{kMostRows} * kDepth, random);
    weights_ = random_bf16(std::size_t{kColumns} * kDepth, random);
    for (std::size_t i = 0; i < kColumns; ++i) bias_.push_back(0.25F * static_cast<float>(i));
  }

  // The first rows of x, onto ones.
  std::vector<float> multiply(BlasMatmul& blas, std::int32_t rows, bool bias, bool add) {
    OnDevice<__nv_bfloat16> x(x_);
    OnDevice<__nv_bfloat16> weights(weights_);
    OnDevice<float> device_bias(bias_);
    OnDevice<float> out(std::vector<float>(static_cast<std::size_t>(rows) * kColumns, 1.0F));
    blas.multiply(
        {x.data(), weights.data(), bias ? device_bias.data() : nullptr, out.data(), {rows, kColumns, kDepth}, add},
        nullptr);
    check(cudaDeviceSynchronize(), "the product");
    return out.to_vector();
  }

  std::vector<__nv_bfloat16> x_, weights_;
  std::vector<float> bias_;
};

TEST_F(BlasProducts, AgreeWithDouble) {
  OnDevice<std::byte> workspace(std::vector<std::byte>(blas_workspace_bytes(9)));
  BlasMatmul blas(workspace.data(), blas_workspace_bytes(9), false);
  for (const std::int32_t rows : {1, 5, 17, kMostRows}) {
    for (const bool bias : {false, true}) {
      for (const bool add : {false, true}) {
        const std::vector<float> got = multiply(blas, rows, bias, add);
        for (std::size_t i = 0; i < got.size(); ++i) {
          double expected = (bias ? static_cast<double>(bias_[i % kColumns]) : 0.0) + (add ? 1.0 : 0.0);
          double size = std::fabs(expected);
          for (std::size_t k = 0; k < kDepth; ++k) {
            const double term = static_cast<double>(__bfloat162float(x_[i / kColumns * kDepth + k])) *
                                static_cast<double>(__bfloat162float(weights_[i % kColumns * kDepth + k]));
            expected += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(got[i], expected, 2e-6 * size) << rows << " rows, at " << i;
        }
      }
    }
  }
}

TEST_F(BlasProducts, DeterministicARowIsTheSameAmongAnyNumber) {
  OnDevice<std::byte> workspace(std::vector<std::byte>(blas_workspace_bytes(9)));
  BlasMatmul blas(workspace.data(), blas_workspace_bytes(9), true);
  const std::vector<float> all = multiply(blas, kMostRows, false, false);
  for (const std::int32_t rows : {1, 2, 7, 16, 64, 129}) {
    const std::vector<float> some = multiply(blas, rows, false, false);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows;
  }
}

}  // namespace
}  // namespace folio::cuda
