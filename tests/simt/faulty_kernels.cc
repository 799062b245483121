#include "tests/simt/faulty_kernels.h"

#include <memory>

namespace folio::cuda {
namespace {

struct Faulty {
  Fault fault;
  const float* from;
  float* to;
  float* foreign;
};

FOLIO_KERNEL(kFaultyThreads) faulty_kernel_kernel(Faulty work) {
  const Fault fault = work.fault;
  const int thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * kFaultyThreads;
  SharedArena arena;
  float* tile = arena.take<float>(kFaultyThreads);
  float* copied = arena.take<float>(fault == Fault::kTakesDiffer && thread == 40 ? 32
                                    : fault == Fault::kTooMuchShared             ? 2 * kFaultyThreads
                                                                                 : kFaultyThreads);
  if (thread < kFaultyThreads / 4) {
    copy_16_async(copied + 4 * thread + (fault == Fault::kMisaligned ? 1 : 0), work.from + first + 4 * thread, true);
  }
  commit_copies();
  const int last = kFaultyCtas * kFaultyThreads - 1;
  const int past = first + thread == last ? 1 : 0;
  const float own = work.from[first + thread + (fault == Fault::kReadPastEnd ? past : 0)];
  if (fault != Fault::kUnwritten || thread != 7) tile[thread] = own;
  if (fault == Fault::kPieceOverrun && thread == 63) tile[kFaultyThreads] = own;
  if (fault == Fault::kDivergentBarrier) {
    if (thread < 32) {
      sync_cta();
    } else {
      sync_cta();
    }
  }
  if (fault == Fault::kBarrierInHalf && thread < 32) sync_cta();
  if (fault == Fault::kEndedThread && thread == 63) return;
  if (fault != Fault::kNoSyncCta) sync_cta();
  const float across = tile[thread ^ 33];
  if (fault != Fault::kNoSyncCtaBefore && fault != Fault::kNoSyncCta) sync_cta();
  if (fault == Fault::kLateCopy) {
    if (tile[thread] == own && thread == 63) copy_16_async(tile, work.from + first, true);
    sync_cta();
  }
  tile[thread] = 2 * across;
  if (fault == Fault::kNoSyncWarp) {
    shuffle(own, 0);
  } else {
    sync_warp();
  }
  const float doubled = tile[thread ^ 1];
  if (fault != Fault::kNoWait) wait_copies<0>();
  sync_cta();
  float near = copied[thread ^ 1];
  if (fault == Fault::kLaneMissing && thread % kWarpSize != 31) near = shuffle(near, thread % kWarpSize);
  if (fault == Fault::kLaneElsewhere) {
    if (thread % kWarpSize != 31) {
      near = shuffle(near, thread % kWarpSize);
    } else {
      near = shuffle(near, 31);
    }
  }
  if (fault == Fault::kForeignMemory && thread == 0) *work.foreign = near;
  if (fault == Fault::kWriteAfterReads) {
    const bool positive = copied[0] > 0;
    sync_warp();  // orders the readers of one warp alone
    if (positive && thread == 63) copied[0] = near;
  }
  auto* bytes = reinterpret_cast<unsigned char*>(tile);
  bytes[thread] = 1;
  if (fault == Fault::kSharedByte && thread == 6) bytes[5] = 1;
  sync_warp();
  near += static_cast<float>(bytes[thread ^ 1] - 1);
  int at = first + thread + (fault == Fault::kWritePastEnd ? past : 0);
  if (fault == Fault::kCtasMeet && thread == 5) at = 5;
  if (fault == Fault::kCtasReadWrite && thread == 5) near += work.to[5];
  work.to[at] = shuffle_xor(doubled, 1) + near;
}

}  // namespace

void faulty_kernel(Fault fault, const float* from, float* to) {
  const auto foreign = std::make_unique<float>();
  launch("faulty", faulty_kernel_kernel, {kFaultyCtas, kFaultyThreads, 2 * kFaultyThreads * sizeof(float)},
         {fault, from, to, foreign.get()});
}

}  // namespace folio::cuda
