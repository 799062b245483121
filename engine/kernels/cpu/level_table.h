// The table of a level, filled with the instantiations of this file's templates; included last by kernels_*.cc.
#pragma once

namespace folio::cpu {
namespace {

constexpr KernelTable level_table(const char* name) {
  KernelTable t{};
  t.name = name;
  const auto set = [&t](PanelFormat format, MatmulFn fn) { t.matmul[static_cast<int>(format)] = fn; };
  set(PanelFormat::kF32, matmul<FloatPanels<float>>);
  set(PanelFormat::kF16, matmul<FloatPanels<Half>>);
  set(PanelFormat::kBF16, matmul<FloatPanels<BFloat16>>);
  set(PanelFormat::kU4Half, matmul<IntegerPanels<4, 32, Half, false, true>>);
  set(PanelFormat::kU4HalfMin, matmul<IntegerPanels<4, 32, Half, true, true>>);
  set(PanelFormat::kU4FloatMin, matmul<IntegerPanels<4, 32, float, true, true>>);
  set(PanelFormat::kU8Half, matmul<IntegerPanels<8, 32, Half, false, false>>);
  set(PanelFormat::kU8HalfMin, matmul<IntegerPanels<8, 32, Half, true, true>>);
  set(PanelFormat::kU8FloatMin, matmul<IntegerPanels<8, 32, float, true, true>>);
  set(PanelFormat::kU8Float16, matmul<IntegerPanels<8, 16, float, false, true>>);
  t.quantize_rows = quantize_rows;
  t.rms_norm = rms_norm;
  t.rope = rope;
  t.gate_silu = gate<silu>;
  t.gate_gelu = gate<gelu>;
  t.add = add_rows;
  t.scale = scale_rows;
  t.write_kv[static_cast<int>(KvType::kF16)] = write_kv<Half>;
  t.write_kv[static_cast<int>(KvType::kF32)] = write_kv<float>;
  t.write_kv[static_cast<int>(KvType::kBF16)] = write_kv<BFloat16>;
  t.write_kv[static_cast<int>(KvType::kInt8)] = write_kv_int8;
  set_attention<Half>(t, KvType::kF16);
  set_attention<float>(t, KvType::kF32);
  set_attention<BFloat16>(t, KvType::kBF16);
  set_attention<std::int8_t>(t, KvType::kInt8);
  t.merge = merge_rows;
  t.finish = finish_row;
  return t;
}

}  // namespace
}  // namespace folio::cpu
