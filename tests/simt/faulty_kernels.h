// A small kernel that is right, and what it is with one fault planted: for faults_test.cc.
#pragma once
#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

enum class Fault : std::uint8_t {
  kNone,
  kNoSyncCta,        // between a write and a read of another warp's
  kNoSyncCtaBefore,  // between a read and the write that follows it
  kNoSyncWarp,       // between a write and a read of another lane's; a shuffle stands there, which orders nothing
  kNoWait,           // for copies
  kLateCopy,         // a copy to where another warp still reads
  kReadPastEnd,      // of a buffer
  kWritePastEnd,
  kPieceOverrun,      // past the end of a piece of shared memory, before the next one
  kUnwritten,         // a read of shared memory that nobody wrote
  kDivergentBarrier,  // two warps at two barriers
  kBarrierInHalf,     // one that half of the threads do not reach
  kEndedThread,       // one ends where the others wait
  kLaneMissing,       // from a shuffle
  kLaneElsewhere,     // in another shuffle
  kTakesDiffer,       // threads take pieces of different sizes
  kTooMuchShared,     // more than the launch gave
  kWriteAfterReads,   // one writes what it and all others have read
  kSharedByte,        // one writes a byte of another, in a word that four threads share
  kCtasMeet,          // two CTAs write one address
  kCtasReadWrite,     // one CTA reads what another writes
  kForeignMemory,     // a write to memory that is not the device's
  kMisaligned,        // a copy to an address that is no multiple of 16
};

inline constexpr int kFaultyThreads = 64;
inline constexpr int kFaultyCtas = 2;

// to[i] = 2 * from[i ^ 33] + from[i ^ 1], both [kFaultyCtas * kFaultyThreads] on the device.
void faulty_kernel(Fault fault, const float* from, float* to);

}  // namespace folio::cuda
