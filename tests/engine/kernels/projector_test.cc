// The projector against single calls of the kernel table, one row at a time on one thread: the same bits, whatever the
// rows, the threads, the formats that share an input, and what the step before has taught it.
#include "engine/kernels/cpu/projector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/kernels/cpu/packed_matrix.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/kernels/test_tensor.h"

namespace folio::cpu {
namespace {

using Row = std::vector<float>;

Row random_row(std::int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Row row(static_cast<std::size_t>(n));
  for (float& v : row) v = normal(random);
  return row;
}

template <class T>
bool same_bits(const T* a, const std::vector<T>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(T)) == 0;
}

struct Matrix {
  Matrix(TensorType type, std::int32_t depth, std::int32_t columns, std::mt19937& random, ThreadPool& pool)
      : packed(make_tensor(type, depth, columns, random).tensor, pool) {}
  PackedMatrix packed;
};

struct QuantizedRow {
  std::vector<std::int8_t> q;
  std::vector<QuantGroup> groups;

  QuantizedRow(const KernelTable& kernels, const Row& x) : q(x.size()), groups(x.size() / kQuantGroup) {
    kernels.quantize_rows(x.data(), x.size(), 1, static_cast<int>(x.size()), {x.size(), q.data(), groups.data()});
  }
  bool is_row(const ActivationRows& rows, std::int64_t r) const {
    return same_bits(rows.integers(r).q, q) && same_bits(rows.integers(r).groups, groups);
  }
};

Row plain_norm(const KernelTable& kernels, const float* x, std::int32_t depth, Norm norm) {
  const auto n = static_cast<std::size_t>(depth);
  Row out(x, x + n);
  if (norm.weight != nullptr) kernels.rms_norm(x, n, norm.weight, norm.epsilon, 1, depth, out.data(), n);
  return out;
}

Row plain_product(const KernelTable& kernels, Row x, const PackedMatrix& matrix, const float* bias = nullptr) {
  Row out(static_cast<std::size_t>(matrix.columns()));
  MatmulArgs args{};
  matrix.fill(args);
  args.x = x.data();
  args.out = out.data();
  args.out_stride = out.size();
  args.bias = bias;
  const MatmulFn fn = kernels.matmul[static_cast<int>(matrix.format())];
  if (matrix.is_integer()) {
    QuantizedRow quantized(kernels, x);
    args.quantized = {x.size(), quantized.q.data(), quantized.groups.data()};
    fn(args, 0, matrix.num_panels(), 0, 1, nullptr);
  } else {
    fn(args, 0, matrix.num_panels(), 0, 1, nullptr);
  }
  return out;
}

Row plain_gated(const KernelTable& kernels, const Row& x, const PackedMatrix& gate, const PackedMatrix& up,
                Activation activation) {
  const Row g = plain_product(kernels, x, gate);
  const Row u = plain_product(kernels, x, up);
  Row out(g.size());
  (activation == Activation::kSilu ? kernels.gate_silu : kernels.gate_gelu)(g.data(), u.data(), out.data(), g.size());
  return out;
}

class ProjectorLevels : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& kernels_ = select_kernels(GetParam());
  std::mt19937 random_{43};
};

TEST_P(ProjectorLevels, GatedProductsAreTwoProductsTheGateAndTheFormOfDown) {
  const struct {
    TensorType gate, up, down;
    std::int32_t depth, columns;
  } cases[] = {
      {TensorType::kQ4_0, TensorType::kQ4_0, TensorType::kF32, 96, 53},  // the last panel is cut
      {TensorType::kF32, TensorType::kF16, TensorType::kBF16, 37, 70},
      {TensorType::kF16, TensorType::kQ8_0, TensorType::kF16, 64, 31},  // one of floats, one of integers
      {TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kQ8_0, 64, 96},
      {TensorType::kQ5_1, TensorType::kF32, TensorType::kQ4_1, 32, 32},
      {TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ4_K, 256, 256},
  };
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const auto& c : cases) {
      const Matrix gate(c.gate, c.depth, c.columns, random_, pool);
      const Matrix up(c.up, c.depth, c.columns, random_, pool);
      const Matrix down(c.down, c.columns, 5, random_, pool);
      Projector projector(kernels_, pool);
      ActivationRows in;
      ActivationRows gated;
      for (const int rows : {193, 65, 1}) {
        const Activation activation = rows == 65 ? Activation::kGelu : Activation::kSilu;
        const Row x = random_row(rows * c.depth, random_);
        projector.begin_step();
        projector.prepare(x.data(), {}, rows, {}, std::vector<Projection>{{&gate.packed}, {&up.packed}}, in);
        projector.project_gated(in, gate.packed, up.packed, activation, down.packed, gated);
        ASSERT_EQ(gated.rows(), rows);
        ASSERT_EQ(gated.depth(), c.columns);
        ASSERT_EQ(gated.has_integers(), down.packed.is_integer());
        ASSERT_EQ(gated.has_floats(), !down.packed.is_integer());
        for (int r = 0; r < rows; ++r) {
          const Row row = plain_norm(kernels_, x.data() + r * c.depth, c.depth, {});
          const Row expected = plain_gated(kernels_, row, gate.packed, up.packed, activation);
          ASSERT_TRUE(down.packed.is_integer() ? QuantizedRow(kernels_, expected).is_row(gated, r)
                                               : same_bits(gated.floats(r), expected))
              << tensor_type_info(c.down).name << " threads " << threads << " row " << r << " of " << rows;
        }
      }
    }
  }
}

// Matrices of both kinds share an input, which is normed or not, of all rows or of some in any order.
TEST_P(ProjectorLevels, AnInputIsPreparedInEachFormThatIsWanted) {
  const std::int32_t depth = 96;
  const std::vector<std::int32_t> some = {130, 0, 7, 7, 192};
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const Matrix floats(TensorType::kF32, depth, 40, random_, pool);
    const Matrix integers(TensorType::kQ4_1, depth, 101, random_, pool);
    const Row x = random_row(193 * depth, random_);
    const Row weight = random_row(depth, random_);
    const Row bias = random_row(101, random_);
    Projector projector(kernels_, pool);
    ActivationRows in;
    for (const bool both : {true, false}) {
      for (const Norm norm : {Norm{}, Norm{weight.data(), 1e-5F}}) {
        for (const std::span<const std::int32_t> from : {std::span<const std::int32_t>(), std::span(some)}) {
          const int rows = from.empty() ? 193 : static_cast<int>(from.size());
          std::vector<float> out(static_cast<std::size_t>(rows) * 101, 0.5F);
          std::vector<float> of_floats(static_cast<std::size_t>(rows) * 40, 0.5F);
          std::vector<Projection> projections = {{&integers.packed, bias.data(), out.data()}};
          if (both) projections.push_back({&floats.packed, nullptr, of_floats.data()});
          projector.prepare(x.data(), from, rows, norm, projections, in);
          ASSERT_EQ(in.has_floats(), both);
          ASSERT_TRUE(in.has_integers());
          projector.project(in, projections, both);
          for (int r = 0; r < rows; ++r) {
            const int at = from.empty() ? r : from[static_cast<std::size_t>(r)];
            const Row row = plain_norm(kernels_, x.data() + at * depth, depth, norm);
            ASSERT_TRUE(QuantizedRow(kernels_, row).is_row(in, r)) << r;
            Row expected = plain_product(kernels_, row, integers.packed, bias.data());
            if (both) {
              ASSERT_TRUE(same_bits(in.floats(r), row)) << r;
              Row added = plain_product(kernels_, row, floats.packed);
              for (float& v : added) v = 0.5F + v;
              ASSERT_TRUE(same_bits(of_floats.data() + r * 40, added)) << r;
              for (float& v : expected) v = 0.5F + v;
            }
            ASSERT_TRUE(same_bits(out.data() + r * 101, expected)) << r << " threads " << threads;
          }
        }
      }
    }
  }
}

// A layer and the logits as the backend asks for them; wide enough that items are runs of several panels.
struct Layer {
  static constexpr std::int32_t kHidden = 64;
  static constexpr std::int32_t kWide = 1216;
  static constexpr std::int32_t kVocab = 500;
  Matrix q, v, o, gate, up, down, head;

  Layer(std::mt19937& random, ThreadPool& pool)
      : q(TensorType::kQ4_0, kHidden, kHidden, random, pool),
        v(TensorType::kF16, kHidden, 40, random, pool),
        o(TensorType::kQ8_0, kHidden, kHidden, random, pool),
        gate(TensorType::kQ4_0, kHidden, kWide, random, pool),
        up(TensorType::kQ5_0, kHidden, kWide, random, pool),
        down(TensorType::kQ4_1, kWide, kHidden, random, pool),
        head(TensorType::kQ8_0, kHidden, kVocab, random, pool) {}
};

struct Step {
  std::vector<float> v, x, logits;  // logits of the last row and of the first
};

Step run_step(const Layer& layer, Projector& projector, Row x, int rows, int products = 5) {
  const auto n = static_cast<std::size_t>(rows);
  const Row weight(Layer::kHidden, 0.75F);
  const Norm norm{weight.data(), 1e-5F};
  ActivationRows in;
  ActivationRows gated;
  Step step{Row(n * 40), {}, Row(2 * Layer::kVocab)};
  Row q(n * Layer::kHidden);
  projector.begin_step();
  const auto project = [&](const float* from, std::span<const std::int32_t> some, int count, Norm with,
                           std::vector<Projection> projections, bool add) {
    projector.prepare(from, some, count, with, projections, in);
    projector.project(in, projections, add);
  };
  project(x.data(), {}, rows, norm, {{&layer.q.packed, nullptr, q.data()}, {&layer.v.packed, nullptr, step.v.data()}},
          false);
  if (products > 1) project(q.data(), {}, rows, {}, {{&layer.o.packed, nullptr, x.data()}}, true);
  if (products > 2) {
    projector.prepare(x.data(), {}, rows, norm, std::vector<Projection>{{&layer.gate.packed}, {&layer.up.packed}}, in);
    projector.project_gated(in, layer.gate.packed, layer.up.packed, Activation::kSilu, layer.down.packed, gated);
    projector.project(gated, std::vector<Projection>{{&layer.down.packed, nullptr, x.data()}}, true);
    const std::vector<std::int32_t> logit_rows = {rows - 1, 0};
    project(x.data(), logit_rows, 2, norm, {{&layer.head.packed, nullptr, step.logits.data()}}, false);
  }
  step.x = std::move(x);
  return step;
}

bool is_row(const Step& step, int r, const Step& alone) {
  return same_bits(step.v.data() + r * 40, alone.v) && same_bits(step.x.data() + r * Layer::kHidden, alone.x);
}

TEST_P(ProjectorLevels, ARowIsTheSameInEveryStepAsAlone) {
  ThreadPool one(1);
  const Layer layer(random_, one);
  const Row x = random_row(193 * Layer::kHidden, random_);
  const auto first_rows = [&](int begin, int count) {
    return Row(x.begin() + begin * Layer::kHidden, x.begin() + (begin + count) * Layer::kHidden);
  };
  std::vector<Step> alone;
  for (int r = 0; r < 193; ++r) {
    Projector fresh(kernels_, one);
    alone.push_back(run_step(layer, fresh, first_rows(r, 1), 1));
  }
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    Projector projector(kernels_, pool);
    // Steps alike, of other rows, and one that ends early: what is asked for next is then another product's start.
    for (const int rows : {193, 193, 65, 1, 1, 193}) {
      const Step step = run_step(layer, projector, first_rows(0, rows), rows);
      for (int r = 0; r < rows; ++r) {
        ASSERT_TRUE(is_row(step, r, alone[static_cast<std::size_t>(r)]))
            << "row " << r << " of " << rows << " threads " << threads;
      }
      const auto logits_of = [&](int r) {
        const Row& both = alone[static_cast<std::size_t>(r)].logits;
        return Row(both.begin(), both.begin() + Layer::kVocab);
      };
      ASSERT_TRUE(same_bits(step.logits.data(), logits_of(rows - 1)));
      ASSERT_TRUE(same_bits(step.logits.data() + Layer::kVocab, logits_of(0)));
      if (rows == 65) run_step(layer, projector, first_rows(0, rows), rows, 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ProjectorLevels, testing::ValuesIn(levels_outside_attention()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio::cpu
