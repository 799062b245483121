// The parts of gpu_check. Each runs in a process of its own: a kernel that takes the device along, or that never ends,
// takes no other part with it.
#pragma once
#include "tests/gpu/report.h"

namespace folio::gpu {

void check_attention(Report& report);
void check_rows(Report& report);
void check_sampling(Report& report);
void check_products(Report& report);
void check_tiny_models(Report& report);
void check_cut_model(Report& report);
// For compute-sanitizer, which makes everything some hundred times slower.
void check_sample(Report& report);
void check_small_attention(Report& report);

void time_attention(Report& report);
void time_products(Report& report);
void time_cut_model(Report& report);
void time_large_model(Report& report);

}  // namespace folio::gpu
