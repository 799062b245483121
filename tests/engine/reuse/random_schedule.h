// A schedule made from a seed: requests that share, collide, end early and come in a pool that is too small for them.
// It is played on the engine's own thread (the step observer hands over what is due) with a clock that only steps move,
// so the same seed is the same schedule, step by step. Even seeds are played at depth 1, odd ones at depth 2.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/engine/reuse/stage.h"

namespace folio {

// What is asked in all schedules of one subject, and what each gives alone.
struct Asked {
  GenerationRequest request;
  Answer alone;
};
std::vector<Asked> make_asked(Solo& solo);

// What the schedules came upon, so that it is known what was tested.
struct Seen {
  std::int64_t schedules = 0, steps = 0, preemptions = 0, recomputed = 0, cached = 0, copies = 0, pinned = 0;
  std::int64_t pins_released = 0, whole = 0, beginnings = 0, late = 0, scored = 0;
  std::int64_t behind = 0;  // steps started while one was in flight
};

// Fails (with gtest) when an answer is not as alone or something is left over.
void play_schedule(const ModelFile& file, const std::string& isa, const std::string& kv,
                   const std::vector<Asked>& asked, std::uint64_t seed, Seen& seen);

}  // namespace folio
