#include "tests/simt/memory_race.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "tests/simt/machine.h"
#include "tests/simt/memory.h"
#include "tests/simt/symbols.h"
#include "tests/simt/traffic.h"

// From the linker: where the program's code and data begin and end.
extern "C" const char __executable_start;
extern "C" const char end;

namespace folio::simt::memory {
namespace {

struct Buffer {
  std::size_t bytes;
  std::size_t guard;
  Shadow shadow;
};

struct Piece {
  char* begin;
  std::size_t bytes;
};

constexpr std::size_t kArenaBytes = kMaxSharedBytes + (kMaxPieces + 1) * kPieceGuard;
alignas(1024) char arena[kArenaBytes];
std::vector<Piece> pieces;                                    // of the running CTA
std::map<const char*, Buffer> buffers;                        // by where they begin
std::pair<const char* const, Buffer>* last_buffer = nullptr;  // of the last access
std::uint32_t first_cta_of_launch = 1;

Shadow& arena_shadow() {
  static Shadow shadow(arena, kArenaBytes);
  return shadow;
}

// ---- faults ----

enum class Kind : std::uint8_t { kRace, kUnwritten, kFlying, kOutside, kForeign };
struct Fault {
  Kind kind;
  Access mine;
  bool i_write;
  std::size_t bytes;
  Access theirs;
  bool they_write;
  std::ptrdiff_t distance;    // kOutside: bytes from the begin of what lies nearest before
  std::size_t nearest_bytes;  // its size
  bool shared;
} fault;

Access here(const void* site) {
  const Moment& now = machine().now();
  return {now.cta, now.thread, now.cta_barriers, now.warp_barriers,
          static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(site))};
}

const void* address(std::uint32_t site) {
  return reinterpret_cast<const void*>(std::uintptr_t{site});
}

std::string their_part() {
  std::string text = fault.they_write ? "a write by " : "a read by ";
  text += machine().thread_name(fault.theirs.thread);
  if (fault.theirs.cta != fault.mine.cta) text += " of another CTA";
  return text + " at " + source_line(address(fault.theirs.site));
}

std::string fault_text() {
  const std::string mine = std::string(fault.i_write ? "a write" : "a read") + " of " + std::to_string(fault.bytes) +
                           " bytes of " + (fault.shared ? "shared" : "global") + " memory by " +
                           machine().thread_name(fault.mine.thread) + " at " + source_line(address(fault.mine.site));
  const bool same_warp = fault.mine.cta == fault.theirs.cta && fault.mine.thread / 32 == fault.theirs.thread / 32;
  switch (fault.kind) {
    case Kind::kRace:
      return "race: " + mine + " and " + their_part() +
             (fault.mine.cta != fault.theirs.cta ? ""
              : same_warp                        ? " with no sync_warp between them"
                                                 : " with no sync_cta between them");
    case Kind::kUnwritten:
      return mine + ", which nobody wrote";
    case Kind::kFlying:
      return mine + ", where a copy has not landed: of " + machine().thread_name(fault.theirs.thread) + " at " +
             source_line(address(fault.theirs.site));
    case Kind::kOutside:
      return mine + ", outside of what the kernel was given: " + std::to_string(fault.distance) +
             " bytes from the begin of " + std::to_string(fault.nearest_bytes);
    case Kind::kForeign:
      return mine + ", which is not device memory";
  }
  return mine;
}

// ---- the checks of a record ----

enum Unordered : std::uint8_t { kOrdered, kInWarp, kInCta, kBetweenCtas };  // the later, the harder to order

Unordered unordered(const Access& past, const Access& now) {
  if (past.cta != now.cta) return past.cta < first_cta_of_launch ? kOrdered : kBetweenCtas;
  if (past.thread == now.thread || past.cta_barriers != now.cta_barriers) return kOrdered;
  if (past.thread / 32 != now.thread / 32) return kInCta;
  return past.warp_barriers != now.warp_barriers ? kOrdered : kInWarp;
}

void note_read(Record& record, const Access& now) {
  if (record.read.thread != now.thread || record.read.cta != now.cta) {
    const Unordered last = unordered(record.read, now);
    const Unordered other = unordered(record.other_read, now);
    if (last >= other) record.other_read = last == kOrdered ? Access{} : record.read;
  }
  record.read = now;
}

[[noreturn]] void stop(Kind kind, const Access& now, bool write, std::size_t bytes, bool shared, const Access& theirs,
                       bool they_write) {
  fault = {kind, now, write, bytes, theirs, they_write, 0, 0, shared};
  machine().stop(fault_text);
}

void check_record(Record& record, const Access& now, bool write, std::size_t bytes, bool shared) {
  if (shared) {
    if (record.flying_cta == now.cta) stop(Kind::kFlying, now, write, bytes, shared, record.write, true);
    if (record.write.cta != now.cta) {  // another CTA's memory was another
      if (!write) stop(Kind::kUnwritten, now, write, bytes, shared, {}, true);
      record = Record{};
    }
  }
  if (unordered(record.write, now) != kOrdered) stop(Kind::kRace, now, write, bytes, shared, record.write, true);
  if (!write) {
    note_read(record, now);
    return;
  }
  for (const Access& read : {record.read, record.other_read}) {
    if (unordered(read, now) != kOrdered) stop(Kind::kRace, now, write, bytes, shared, read, false);
  }
  record.write = now;
  record.read = record.other_read = Access{};
}

// ---- where an access goes ----

[[noreturn]] void outside(const char* nearest, std::size_t nearest_bytes, const char* at, std::size_t bytes, bool write,
                          bool shared, const void* site) {
  fault = {Kind::kOutside, here(site), write, bytes, {}, false, at - nearest, nearest_bytes, shared};
  machine().stop(fault_text);
}

bool in_arena(const char* at) {
  return at >= arena && at < arena + kArenaBytes;
}

void access_shared(const char* at, std::size_t bytes, bool write, const void* site) {
  const Piece* before = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.begin <= at) before = &piece;
  }
  if (before == nullptr) outside(arena, 0, at, bytes, write, true, site);
  if (at + bytes > before->begin + before->bytes) outside(before->begin, before->bytes, at, bytes, write, true, site);
  const Access now = here(site);
  arena_shadow().for_each(at, bytes, [&](Record& record) { check_record(record, now, write, bytes, true); });
  traffic::record(at, bytes, write, true, site);
}

bool in_buffer(const std::pair<const char* const, Buffer>& entry, const char* at) {
  return at >= entry.first - entry.second.guard && at < entry.first + entry.second.bytes + entry.second.guard;
}

// nullptr: in no buffer nor its guards.
std::pair<const char* const, Buffer>* find_buffer(const char* at) {
  if (last_buffer != nullptr && in_buffer(*last_buffer, at)) return last_buffer;
  auto after = buffers.upper_bound(at);
  if (after != buffers.end() && in_buffer(*after, at)) return &*after;
  if (after == buffers.begin() || !in_buffer(*--after, at)) return nullptr;
  return &*after;
}

bool is_host_memory_of_a_launch(const char* at) {
  const Fiber& main = machine().main();
  return (at >= main.stack && at < main.stack + main.stack_bytes) || (at >= &__executable_start && at < &end);
}

void access_global(const char* at, std::size_t bytes, bool write, const void* site) {
  auto* buffer = find_buffer(at);
  if (buffer == nullptr) {
    if (is_host_memory_of_a_launch(at)) return;
    stop(Kind::kForeign, here(site), write, bytes, false, {}, false);
  }
  last_buffer = buffer;
  const auto& [begin, content] = *buffer;
  if (at < begin || at + bytes > begin + content.bytes) {
    outside(begin, content.bytes, at, bytes, write, false, site);
  }
  const Access now = here(site);
  buffer->second.shadow.for_each(at, bytes, [&](Record& record) { check_record(record, now, write, bytes, false); });
  traffic::record(at, bytes, write, false, site);
}

}  // namespace

Shadow::Shadow(const char* begin, std::size_t bytes)
    : begin_(begin), bytes_(bytes), words_(static_cast<Word*>(std::calloc(bytes / 4 + 1, sizeof(Word))), std::free) {
  if (words_ == nullptr) throw std::bad_alloc();
}

std::array<Record, 4>& Shadow::split(Word& word) {
  if (word.split == 0) {
    split_.push_back({word.record, word.record, word.record, word.record});
    word.split = static_cast<std::uint32_t>(split_.size());
  }
  return split_[word.split - 1];
}

void on_access(const void* at, std::size_t bytes, bool write, const void* site) {
  const char* from = static_cast<const char*>(at);
  if (in_arena(from)) {
    access_shared(from, bytes, write, site);
  } else if (!machine().on_fiber_stack(at)) {
    access_global(from, bytes, write, site);
  }
}

// ---- memory.h ----

void begin_launch(std::uint32_t first_cta) {
  first_cta_of_launch = first_cta;
}

char* open_piece(std::size_t offset, std::size_t bytes) {
  pieces.push_back({arena + offset, bytes});
  std::memset(arena + offset, 0xff, bytes);
  return arena + offset;
}

void end_cta() {
  pieces.clear();
}

void end_of_stretch(int warp) {
  traffic::count(warp);
}

void read(const void* from, std::size_t bytes, const void* site) {
  on_access(from, bytes, false, site);
}

void take_off(void* to, const void* site) {
  on_access(to, 16, true, site);
  std::memset(to, 0xff, 16);
  const std::uint32_t cta = machine().now().cta;
  arena_shadow().for_each(static_cast<const char*>(to), 16, [&](Record& record) { record.flying_cta = cta; });
}

// As a write at the wait: that is what others must be ordered behind.
void land(void* to, const void* site) {
  const Access now = here(site);
  arena_shadow().for_each(static_cast<const char*>(to), 16, [&](Record& record) {
    record.flying_cta = 0;
    record.write = now;
  });
}

void add_buffer(char* begin, std::size_t bytes, std::size_t guard) {
  buffers.emplace(begin, Buffer{bytes, guard, Shadow(begin, bytes)});
}

void remove_buffer(char* begin, std::size_t, std::size_t) {
  buffers.erase(begin);
  last_buffer = nullptr;
}

}  // namespace folio::simt::memory
