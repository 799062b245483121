#include "tests/support/fake_model/fake_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace folio {

std::uint64_t fake_hash(std::uint64_t previous, TokenId token) {
  std::uint64_t x = previous ^ (static_cast<std::uint64_t>(token) + 0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;  // the finaliser of SplitMix64
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t fake_hash(std::span<const TokenId> tokens) {
  std::uint64_t hash = kFakeRoot;
  for (TokenId token : tokens) hash = fake_hash(hash, token);
  return hash;
}

TokenId fake_next_token(std::uint64_t hash, TokenId vocab_size) {
  return static_cast<TokenId>(hash % static_cast<std::uint64_t>(vocab_size));
}

FakeCache::FakeCache(std::int32_t num_blocks, std::int32_t block_size)
    : block_size_(block_size),
      slots_(static_cast<std::size_t>(num_blocks + 1) * static_cast<std::size_t>(block_size)) {}

FakeCache::Slot& FakeCache::slot(std::span<const BlockId> table, std::int64_t position) {
  const auto i = static_cast<std::size_t>(position / block_size_);
  if (i >= table.size()) throw std::logic_error("position " + std::to_string(position) + " is outside of the table");
  const BlockId block = table[i];
  const std::int64_t at = std::int64_t{block} * block_size_ + position % block_size_;
  if (block < 1 || at >= static_cast<std::int64_t>(slots_.size())) {
    throw std::logic_error("block " + std::to_string(block) + " is not in the pool");
  }
  return slots_[static_cast<std::size_t>(at)];
}

std::vector<std::uint64_t> FakeCache::compute(std::span<const BlockId> table, std::int64_t first,
                                              std::span<const TokenId> tokens) {
  std::uint64_t hash = kFakeRoot;
  for (std::int64_t position = 0; position < first; ++position) {
    const Slot& read = slot(table, position);
    if (!read.written || read.previous != hash) {
      throw std::logic_error("position " + std::to_string(position) + " read for " + std::to_string(first) + ": " +
                             (read.written ? "holds another sequence's content" : "was never written"));
    }
    hash = read.hash;
  }
  std::vector<std::uint64_t> hashes;
  for (TokenId token : tokens) {
    const std::uint64_t next = fake_hash(hash, token);
    slot(table, first++) = {next, hash, true};
    hashes.push_back(hash = next);
  }
  return hashes;
}

void FakeCache::copy(BlockId from, BlockId to) {
  const auto at = [&](BlockId block) { return slots_.begin() + std::ptrdiff_t{block} * block_size_; };
  std::copy_n(at(from), block_size_, at(to));
}

}  // namespace folio
