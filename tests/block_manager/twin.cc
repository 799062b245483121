#include "tests/block_manager/twin.h"

#include <algorithm>

namespace folio {

Twin::Twin(int num_blocks, int block_size)
    : block_size_(static_cast<std::size_t>(block_size)), holders_(static_cast<std::size_t>(num_blocks) + 1) {
  for (BlockId block = 1; block <= num_blocks; ++block) free_.insert(block);
}

// ---- domains

int Twin::open(const std::string& salt) {
  int domain = find(salt);
  if (domain == 0) domains_[domain = ++last_serial_] = {salt, false, 0};
  ++domains_[domain].num_users;
  return domain;
}

int Twin::open_private() {
  domains_[++last_serial_] = {"", true, 1};
  return last_serial_;
}

int Twin::find(const std::string& salt) const {
  for (const auto& [serial, domain] : domains_) {
    if (!domain.is_private && domain.salt == salt) return serial;
  }
  return 0;
}

void Twin::close(int domain) {
  if (--domains_.at(domain).num_users == 0 && domains_.at(domain).is_private) drop({domain, {}});
  forget_if_unused(domain);
}

bool Twin::has_entries(int domain) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first.first == domain; });
}

void Twin::forget_if_unused(int domain) {
  const auto found = domains_.find(domain);
  if (found != domains_.end() && found->second.num_users == 0 && !has_entries(domain)) domains_.erase(found);
}

// ---- contents

bool Twin::is_valid(const Tip& tip) const {
  if (tip.path.second.empty()) return domains_.count(tip.path.first) > 0;
  const auto found = entries_.find(tip.path);
  return found != entries_.end() && found->second.serial == tip.serial;
}

std::vector<BlockId> Twin::run(const Tip& root, std::span<const TokenId> tokens) const {
  std::vector<BlockId> ids;
  Path path = root.path;
  for (; is_valid(root) && tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    path.second.insert(path.second.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(block_size_));
    const auto found = entries_.find(path);
    if (found == entries_.end()) break;
    ids.push_back(found->second.block);
  }
  return ids;
}

int Twin::num_common(const Tip& tip, std::span<const TokenId> rest, BlockId block) const {
  std::ptrdiff_t best = 0;
  for (const auto& [path, entry] : entries_) {
    const Tokens& before = tip.path.second;
    if (!is_valid(tip) || path.first != tip.path.first || path.second.size() != before.size() + block_size_) continue;
    if (!std::equal(before.begin(), before.end(), path.second.begin())) continue;
    if (block != 0 && block != entry.block) continue;
    const auto begin = path.second.begin() + static_cast<std::ptrdiff_t>(before.size());
    best = std::max(best, std::mismatch(begin, path.second.end(), rest.begin(), rest.end()).first - begin);
  }
  return static_cast<int>(best);
}

void Twin::adopt(Table& table, std::span<const TokenId> tokens) {
  table.ids = run(table.tip, tokens);
  for (BlockId block : table.ids) hold(block);
  table.num_sealed = static_cast<int>(table.ids.size());
  if (table.ids.empty()) return;
  const Path& path = path_of_.at(table.ids.back());
  table.tip = {path, entries_.at(path).serial};
}

void Twin::seal(Table& table, const Tokens& tokens, int num_computed) {
  for (; (static_cast<std::size_t>(table.num_sealed) + 1) * block_size_ <= static_cast<std::size_t>(num_computed);
       ++table.num_sealed) {
    if (!is_valid(table.tip)) {
      table.tip = {};
      continue;
    }
    const auto end = (static_cast<std::ptrdiff_t>(table.num_sealed) + 1) * static_cast<std::ptrdiff_t>(block_size_);
    const Path path = {table.tip.path.first, Tokens(tokens.begin(), tokens.begin() + end)};
    const BlockId block = table.ids[static_cast<std::size_t>(table.num_sealed)];
    const auto [entry, is_new] = entries_.try_emplace(path, Entry{block, last_serial_ + 1});
    if (is_new) {
      ++last_serial_;
      expect(path_of_.emplace(block, path).second, "a block got a second entry");
    }
    table.tip = {path, entry->second.serial};
  }
}

void Twin::drop(const Path& path) {
  const auto continues = [&](const Path& other) {
    return other.first == path.first && other.second.size() >= path.second.size() &&
           std::equal(path.second.begin(), path.second.end(), other.second.begin());
  };
  for (auto entry = entries_.lower_bound(path); entry != entries_.end() && continues(entry->first);) {
    const BlockId block = entry->second.block;
    path_of_.erase(block);
    if (num_holders(block) == 0) {
      cached_.remove(block);
      free_.insert(block);
    }
    entry = entries_.erase(entry);
  }
  forget_if_unused(path.first);
}

void Twin::drop_block(BlockId block) {
  if (is_indexed(block)) drop(Path(path_of_.at(block)));
}

Twin::Tip Twin::tip_at(const Table& table, int num_blocks) const {
  if (num_blocks > table.num_sealed || !is_valid(table.tip)) return {};
  Path path = table.tip.path;
  path.second.resize(static_cast<std::size_t>(num_blocks) * block_size_);
  return {path, path.second.empty() ? 0 : entries_.at(path).serial};
}

std::vector<BlockId> Twin::chain(const Tip& tip) const {
  Tip root = tip;
  root.path.second.clear();
  return run(root, tip.path.second);
}

// ---- blocks

void Twin::took(BlockId block) {
  expect(num_available() > 0, "a block was taken although none is available");
  if (free_.empty()) {
    expect(block == cached_.front(), "evicted: block " + std::to_string(block) + ", but the least recently used is " +
                                         std::to_string(cached_.front()));
    cached_.pop_front();
    ++holders_[static_cast<std::size_t>(block)];
    drop_block(block);
    return;
  }
  expect(free_.erase(block) == 1, "block " + std::to_string(block) + " was taken, but is not free");
  ++holders_[static_cast<std::size_t>(block)];
}

void Twin::hold(BlockId block) {
  if (holders_[static_cast<std::size_t>(block)]++ > 0) return;
  expect(is_indexed(block), "block " + std::to_string(block) + " is held again although it has no content");
  cached_.remove(block);
}

void Twin::give_back(std::vector<BlockId>& ids) {
  for (; !ids.empty(); ids.pop_back()) {
    const BlockId block = ids.back();
    if (--holders_[static_cast<std::size_t>(block)] > 0) continue;
    if (is_indexed(block)) {
      cached_.push_back(block);
    } else {
      free_.insert(block);
    }
  }
}

}  // namespace folio
