#include "tests/simt/operations.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/simt/fragments.h"
#include "tests/simt/machine.h"
#include "tests/simt/memory.h"

extern uint3 threadIdx;

namespace folio::simt {
namespace {

// The takes of the running CTA so far, in their order.
struct Piece {
  std::uint32_t cta = 0;
  int bytes = 0;
  Where where;
  char* memory = nullptr;
};
std::array<Piece, memory::kMaxPieces> pieces;

template <class T>
std::array<const T*, kLanes> as(const Machine::Inputs& inputs) {
  std::array<const T*, kLanes> typed;
  for (std::size_t i = 0; i < kLanes; ++i) typed[i] = reinterpret_cast<const T*>(inputs[i]);
  return typed;
}

void land(const FlyingCopy& copy) {
  memory::land(copy.to, copy.site);
  if (copy.from != nullptr) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

void require_aligned(const char* operation, const void* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0) {
    throw SimtError(std::string(operation) + ": an address that is no multiple of 16 bytes");
  }
}

struct Matrices {
  std::uint32_t* m;
  std::uint16_t elements[8];
  bool transposed;
};

void combine_matrices(const Machine::Inputs& inputs) {
  const auto lanes = as<Matrices>(inputs);
  std::array<const std::uint16_t*, kLanes> rows;
  for (std::size_t i = 0; i < kLanes; ++i) rows[i] = lanes[i]->elements;
  for (int i = 0; i < kLanes; ++i) {
    const Matrices& to = *lanes[static_cast<std::size_t>(i)];
    distribute_matrices(rows, i, to.transposed, to.m);
  }
}

template <bool kBf16>
void combine_products(const Machine::Inputs& inputs) {
  multiply_add_warp<kBf16>(as<MmaLane>(inputs));
}

}  // namespace

void sync_cta(Where where) {
  const RunnerCode runner;
  machine().sync_cta({"sync_cta", where});
}

void sync_warp(Where where) {
  const RunnerCode runner;
  machine().sync_warp({"sync_warp", where});
}

std::uint64_t exchange(const char* operation, std::uint64_t bits, int lane, Where where) {
  const RunnerCode runner;
  if (lane < 0 || lane >= kLanes) {
    throw SimtError(Place{operation, where}.text() + ": from lane " + std::to_string(lane) + " of a warp");
  }
  return machine().meet_warp({operation, where}, bits)[static_cast<std::size_t>(lane)];
}

std::uint32_t vote(bool predicate, Where where) {
  const RunnerCode runner;
  std::uint32_t votes = 0;
  const auto& inputs = machine().meet_warp({"vote", where}, predicate ? 1 : 0);
  for (std::size_t i = 0; i < kLanes; ++i) votes |= static_cast<std::uint32_t>(inputs[i]) << i;
  return votes;
}

void* take_shared(int offset, int bytes, Where where) {
  const RunnerCode runner;
  Machine& m = machine();
  const auto index = static_cast<std::size_t>(m.running().pieces_taken++);
  if (bytes < 0 || static_cast<std::size_t>(offset + bytes) > m.shared_bytes()) {
    throw SimtError(Place{"take", where}.text() + ": " + std::to_string(offset + bytes) +
                    " bytes of shared memory, and the launch gave " + std::to_string(m.shared_bytes()));
  }
  if (index == pieces.size()) throw SimtError(Place{"take", where}.text() + ": too many pieces of shared memory");
  Piece& piece = pieces[index];
  if (piece.cta != m.now().cta) {  // this thread is the first
    piece = {m.now().cta, bytes, where, memory::open_piece(offset + (index + 1) * memory::kPieceGuard, bytes)};
  } else if (piece.bytes != bytes || !Place{"take", piece.where}.same_as({"take", where})) {
    throw SimtError(Place{"take", where}.text() + " of " + std::to_string(bytes) + " bytes by " +
                    m.thread_name(threadIdx.x) + ": another thread's was " + Place{"take", piece.where}.text() +
                    " of " + std::to_string(piece.bytes));
  }
  return piece.memory;
}

void copy_16(void* to, const void* from) {
  const RunnerCode runner;
  const void* site = __builtin_return_address(0);
  require_aligned("copy_16_async", to);
  if (from != nullptr) {
    require_aligned("copy_16_async", from);
    memory::read(from, 16, site);
  }
  memory::take_off(to, site);
  machine().running().copies.push_back({to, from, site});
}

void commit_copies() {
  const RunnerCode runner;
  Thread& self = machine().running();
  std::size_t committed = 0;
  for (const std::size_t size : self.group_sizes) committed += size;
  self.group_sizes.push_back(self.copies.size() - committed);
}

void wait_copies(int pending) {
  const RunnerCode runner;
  Thread& self = machine().running();
  while (self.group_sizes.size() > static_cast<std::size_t>(pending)) {
    const auto end = self.copies.begin() + static_cast<std::ptrdiff_t>(self.group_sizes.front());
    std::for_each(self.copies.begin(), end, land);
    self.copies.erase(self.copies.begin(), end);
    self.group_sizes.erase(self.group_sizes.begin());
  }
}

void load_matrices(std::uint32_t (&m)[4], const void* row, bool transposed, Where where) {
  const RunnerCode runner;
  require_aligned("load_matrices", row);
  memory::read(row, 16, __builtin_return_address(0));
  Matrices mine{m, {}, transposed};
  std::memcpy(mine.elements, row, 16);
  machine().meet_warp({transposed ? "load_matrices_transposed" : "load_matrices", where},
                      reinterpret_cast<std::uint64_t>(&mine), combine_matrices);
}

void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, bool bf16,
                  Where where) {
  const RunnerCode runner;
  const MmaLane mine{d, a, {b0, b1}};
  machine().meet_warp({bf16 ? "multiply_add of bf16" : "multiply_add of f16", where},
                      reinterpret_cast<std::uint64_t>(&mine), bf16 ? combine_products<true> : combine_products<false>);
}

}  // namespace folio::simt
