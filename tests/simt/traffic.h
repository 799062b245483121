// How kernels use memory, by source line: conflicts of shared-memory banks and sectors of global memory. Counted in the
// race build. What the lanes of a warp access by one instruction is found by matching, between two places that all of
// them reach together, the n-th access of each lane at one code address.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace folio::simt::traffic {

struct Row {
  std::string place;  // "engine/kernels/cuda/x.cu:12"
  bool shared = false;
  bool write = false;
  std::uint64_t accesses = 0;  // by warps
  double bytes = 0;            // of all lanes, a warp access
  // Shared: bank passes for each piece of 32 lanes × 4 bytes, 16 × 8 or 8 × 16; 1: no conflict.
  double mean_conflict = 0;
  int worst_conflict = 0;
  // Global: sectors of 32 bytes, a warp access.
  double sectors = 0;
};

// Starts counting anew, for the launches that follow, or stops. Off until first called.
void enable(bool on);
// What was counted, by line.
std::vector<Row> report();
// The report as a table of Markdown.
std::string table();

// For memory_race.cc: an access of the running thread, and the end of a stretch of its warp (memory.h).
void record(const char* at, std::size_t bytes, bool write, bool shared, const void* site);
void count(int warp);

}  // namespace folio::simt::traffic
