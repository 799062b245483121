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
  set(PanelFormat::kU4Half, matmul<IntegerPanels<PanelFormat::kU4Half>>);
  set(PanelFormat::kU4HalfMin, matmul<IntegerPanels<PanelFormat::kU4HalfMin>>);
  set(PanelFormat::kU4FloatMin, matmul<IntegerPanels<PanelFormat::kU4FloatMin>>);
  set(PanelFormat::kU5Half, matmul<IntegerPanels<PanelFormat::kU5Half>>);
  set(PanelFormat::kU5HalfMin, matmul<IntegerPanels<PanelFormat::kU5HalfMin>>);
  set(PanelFormat::kU5FloatMin, matmul<IntegerPanels<PanelFormat::kU5FloatMin>>);
  set(PanelFormat::kU6Float16, matmul<IntegerPanels<PanelFormat::kU6Float16>>);
  set(PanelFormat::kU8Half, matmul<IntegerPanels<PanelFormat::kU8Half>>);
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
