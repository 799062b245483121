#include "tests/simt/traffic.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "tests/simt/machine.h"
#include "tests/simt/symbols.h"

namespace folio::simt::traffic {
namespace {

struct Entry {
  const char* at;
  const void* site;
  std::uint32_t bytes;
  bool write;
  bool shared;
};

// One instruction's access by the lanes of a warp.
struct WarpAccess {
  Entry sample;
  int count = 0;
  std::array<const char*, kLanes> at{};
  std::array<std::uint8_t, kLanes> lane{};
};

struct Counts {
  std::uint64_t accesses = 0, bytes = 0, passes = 0, pieces = 0, sectors = 0;
  int worst = 0;
  void add(const Counts& other) {
    accesses += other.accesses;
    bytes += other.bytes;
    passes += other.passes;
    pieces += other.pieces;
    sectors += other.sectors;
    worst = std::max(worst, other.worst);
  }
};

using Key = std::tuple<const void*, bool, bool>;  // site, shared, write
bool enabled = false;
std::array<std::vector<Entry>, FiberStacks::kMaxFibers> logs;  // of each thread, since its warp's last stretch
std::map<Key, Counts> counted;

// Different values of at[i] / unit.
int distinct(const char* const* at, int count, std::uintptr_t unit) {
  std::array<std::uintptr_t, kLanes> units;
  for (int i = 0; i < count; ++i) units[static_cast<std::size_t>(i)] = reinterpret_cast<std::uintptr_t>(at[i]) / unit;
  std::sort(units.begin(), units.begin() + count);
  return static_cast<int>(std::unique(units.begin(), units.begin() + count) - units.begin());
}

// How often the banks must be passed for lanes that are served together: the most different words in one bank.
int bank_passes(const char* const* at, int count, std::uint32_t bytes) {
  std::array<std::vector<std::uintptr_t>, 32> words;
  int most = 1;
  for (int i = 0; i < count; ++i) {
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(at[i]) / 4;
    for (std::uintptr_t word = first; word < first + std::max(bytes / 4, 1U); ++word) {
      auto& bank = words[word % 32];
      if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      most = std::max(most, static_cast<int>(bank.size()));
    }
  }
  return most;
}

void count_access(const WarpAccess& access) {
  const Entry& sample = access.sample;
  Counts& counts = counted[{sample.site, sample.shared, sample.write}];
  ++counts.accesses;
  counts.bytes += static_cast<std::uint64_t>(access.count) * sample.bytes;
  if (!sample.shared) {
    counts.sectors += static_cast<std::uint64_t>(distinct(access.at.data(), access.count, 32));
    return;
  }
  const int together = sample.bytes <= 4 ? 32 : sample.bytes == 8 ? 16 : 8;
  for (int from = 0; from < access.count;) {
    int to = from;
    while (to < access.count && access.lane[static_cast<std::size_t>(to)] / together ==
                                    access.lane[static_cast<std::size_t>(from)] / together) {
      ++to;
    }
    const int passes = bank_passes(access.at.data() + from, to - from, sample.bytes);
    ++counts.pieces;
    counts.passes += static_cast<std::uint64_t>(passes);
    counts.worst = std::max(counts.worst, passes);
    from = to;
  }
}

std::map<std::tuple<std::string, bool, bool>, Counts> by_line() {
  std::vector<const void*> sites;
  for (const auto& [key, counts] : counted) sites.push_back(std::get<0>(key));
  std::map<std::tuple<std::string, bool, bool>, Counts> lines;
  if (sites.empty()) return lines;
  const std::vector<std::string> places = source_lines(sites);
  std::size_t i = 0;
  for (const auto& [key, counts] : counted) lines[{places[i++], std::get<1>(key), std::get<2>(key)}].add(counts);
  return lines;
}

}  // namespace

void enable(bool on) {
  enabled = on;
  if (on) counted.clear();
}

void record(const char* at, std::size_t bytes, bool write, bool shared, const void* site) {
  if (!enabled) return;
  logs[machine().now().thread].push_back({at, site, static_cast<std::uint32_t>(bytes), write, shared});
}

void count(int warp) {
  if (!enabled) return;
  std::map<std::pair<Key, int>, WarpAccess> accesses;  // by the count of a lane's accesses there
  for (int lane = 0; lane < kLanes; ++lane) {
    std::map<Key, int> times;
    std::vector<Entry>& log = logs[static_cast<std::size_t>(warp * kLanes + lane)];
    for (const Entry& entry : log) {
      const Key key{entry.site, entry.shared, entry.write};
      WarpAccess& access = accesses[{key, times[key]++}];
      access.sample = entry;
      access.at[static_cast<std::size_t>(access.count)] = entry.at;
      access.lane[static_cast<std::size_t>(access.count++)] = static_cast<std::uint8_t>(lane);
    }
    log.clear();
  }
  for (const auto& [key, access] : accesses) count_access(access);
}

std::vector<Row> report() {
  std::vector<Row> rows;
  for (const auto& [key, counts] : by_line()) {
    const auto& [place, shared, write] = key;
    const auto mean = [](std::uint64_t sum, std::uint64_t of) {
      return of == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(of);
    };
    rows.push_back({place, shared, write, counts.accesses, mean(counts.bytes, counts.accesses),
                    mean(counts.passes, counts.pieces), counts.worst, mean(counts.sectors, counts.accesses)});
  }
  return rows;
}

std::string table() {
  std::string text =
      "| line | access | by warps | bytes | bank passes, mean | worst | sectors |\n|---|---|---|---|---|---|---|\n";
  for (const Row& row : report()) {
    std::array<char, 512> line{};
    const std::string access = std::string(row.shared ? "shared" : "global") + (row.write ? " write" : " read");
    if (row.shared) {
      std::snprintf(line.data(), line.size(), "| %s | %s | %llu | %.0f | %.2f | %d | |\n", row.place.c_str(),
                    access.c_str(), static_cast<unsigned long long>(row.accesses), row.bytes, row.mean_conflict,
                    row.worst_conflict);
    } else {
      std::snprintf(line.data(), line.size(), "| %s | %s | %llu | %.0f | | | %.1f |\n", row.place.c_str(),
                    access.c_str(), static_cast<unsigned long long>(row.accesses), row.bytes, row.sectors);
    }
    text += line.data();
  }
  return text;
}

}  // namespace folio::simt::traffic
