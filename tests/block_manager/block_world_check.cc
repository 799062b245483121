// What can be seen of a BlockWorld, and whether it is right.
#include <algorithm>
#include <map>

#include "tests/block_manager/block_world.h"

namespace folio {

std::string to_string(const Op& op) {
  static constexpr std::array<const char*, kNumOpKinds> kNames = {
      "open",  "room",         "write",  "seal",  "fork",   "clear", "close",  "readopt", "pin",
      "unpin", "unpin oldest", "expire", "flush", "forget", "gone",  "commit", "look",    "move"};
  return std::string(kNames[static_cast<std::size_t>(op.kind)]) + "(" + std::to_string(op.who) + ", " +
         std::to_string(op.arg) + ")";
}

int& BlockWorld::slot(Slots& slots, BlockId block, std::int64_t position) const {
  return slots[static_cast<std::size_t>(block * shape_.block_size + position % shape_.block_size)];
}

void BlockWorld::run_copies(Slots& slots) const {
  for (const Copy& copy : copies_) {
    for (int i = 0; i < copy.num_slots; ++i) slot(slots, copy.to, i) = slot(slots, copy.from, i);
  }
}

int BlockWorld::origin(int before, TokenId token) const {
  return origins_.try_emplace({before, token}, static_cast<int>(origins_.size()) + 1).first->second;
}

std::vector<const BlockTable*> BlockWorld::tables() const {
  std::vector<const BlockTable*> all = {&sources_};
  for (const Sequence& sequence : sequences_) all.push_back(&sequence.table);
  pins_.append_tables(all);
  return all;
}

bool BlockWorld::look(const Sequence& sequence, std::uint8_t arg) {
  for (const char* salt : {"", "a", "b"}) {
    const Twin::Tip root = {.path = {twin_.find(salt), {}}};
    const auto num_cached = static_cast<std::int64_t>(twin_.run(root, sequence.tokens).size()) * shape_.block_size;
    expect(blocks_.num_cached_tokens(salt, sequence.tokens) == num_cached,
           "num_cached_tokens: the twin says otherwise");
  }
  for (int n = 0; n <= sequence.twin.num_sealed + 1; ++n) {
    const Twin::Tip tip = twin_.tip_at(sequence.twin, n);
    const ContentRef content = blocks_.content_of(sequence.table, n);
    expect(blocks_.holds(content) == twin_.is_valid(tip), "content_of: the twin says otherwise");
    if (!twin_.is_valid(tip) || n == 0) continue;
    const BlockTable chain = blocks_.chain(content);
    std::vector<BlockId> twin_chain = twin_.chain(tip);
    expect(std::ranges::equal(chain.ids(), twin_chain), "chain: other blocks than the twin's");
    for (BlockId block : twin_chain) twin_.hold(block);
    twin_.give_back(twin_chain);
  }
  const Tokens next = {arg & 1, arg >> 1 & 1, arg >> 2 & 1};
  const PartialHit hit = blocks_.partial_hit(sequence.table, next);
  expect(hit.num_tokens == twin_.num_common(sequence.twin.tip, next, hit.block) &&
             hit.num_tokens == twin_.num_common(sequence.twin.tip, next, kNullBlock),
         "partial_hit: the twin says otherwise");
  std::vector<const BlockTable*> some;
  std::map<BlockId, int> times;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if ((arg >> i & 1) == 0) continue;
    some.push_back(&sequences_[i].table);
    for (BlockId block : sequences_[i].twin.ids) ++times[block];
  }
  const auto released =
      std::count_if(times.begin(), times.end(), [&](const auto& t) { return t.second == twin_.num_holders(t.first); });
  expect(blocks_.num_released_by(some) == released, "num_released_by: the twin says otherwise");
  expect(blocks_.num_distinct(some) == static_cast<int>(times.size()), "num_distinct: the twin says otherwise");
  return false;
}

void BlockWorld::check_table(const BlockTable& table, const Twin::Table& twin) const {
  expect(std::ranges::equal(table.ids(), twin.ids), "a table has other blocks than its twin");
  expect(table.num_sealed() == twin.num_sealed, "a table has another number of sealed blocks than its twin");
  expect(blocks_.holds(table.tip()) == twin_.is_valid(twin.tip), "a tip is gone, or is not");
}

void BlockWorld::check() {
  const auto all = tables();
  if (auto broken = blocks_.broken_invariant(all)) throw Fault(*broken);
  expect(pins_.counts_agree(), "pins: the counts do not agree with their chains");
  const BlockCounts counts = blocks_.count(all);
  expect(counts.free == twin_.num_free() && counts.cached == twin_.num_cached(), "count: the twin has others");
  expect(counts.held == shape_.num_blocks - twin_.num_available() && counts.held == blocks_.num_held(), "count: held");
  for (BlockId block = 1; block <= shape_.num_blocks; ++block) {
    expect(blocks_.ref_count(block) == twin_.num_holders(block), "ref_count: the twin has another");
  }
  Slots slots = slots_;
  run_copies(slots);
  // The last of the ids hold what was computed for the last of the tokens.
  const auto expect_slots = [&](int domain, std::span<const TokenId> tokens, std::span<const BlockId> ids,
                                const char* whose) {
    const auto size = static_cast<std::size_t>(shape_.block_size);
    const std::size_t num_before = (tokens.size() + size - 1) / size - ids.size();
    int from = first_origin(domain);
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      from = origin(from, tokens[p]);
      if (p / size < num_before) continue;
      if (slot(slots, ids[p / size - num_before], static_cast<std::int64_t>(p)) == from) continue;
      throw Fault(whose + std::string(": K/V of other tokens in block ") + std::to_string(ids[p / size - num_before]));
    }
  };
  for (const Sequence& sequence : sequences_) {
    check_table(sequence.table, sequence.twin);
    const auto computed = std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.num_computed));
    const auto num_blocks = static_cast<std::size_t>(blocks_.blocks_for(sequence.num_computed));
    expect_slots(sequence.domain, computed, std::span(sequence.twin.ids).first(num_blocks), "a sequence");
  }
  expect(std::ranges::equal(sources_.ids(), twin_sources_), "sources: the twin has others");
  expect(pins_.size() == static_cast<int>(twin_pins_.size()), "pins: the twin has another number");
  TimePoint next_expiry = kNoDeadline;
  for (const Pin& pin : twin_pins_) {
    next_expiry = std::min(next_expiry, pin.until);
    expect_slots(pin.tip.path.first, pin.tip.path.second, pin.ids, "a pin");
  }
  expect(pins_.next_expiry() == next_expiry, "pins: the next expiry");
  for (const auto& [path, entry] : twin_.entries()) {
    expect_slots(path.first, path.second, std::span(&entry.block, 1), "an entry");
  }
}

std::vector<std::string> BlockWorld::block_states() const {
  std::vector<std::string> states = {"null"};
  for (BlockId block = 1; block <= shape_.num_blocks; ++block) {
    const bool is_held = blocks_.ref_count(block) > 0;
    std::string state = twin_.is_indexed(block) ? (is_held ? "indexed" : "cached") : (is_held ? "held" : "free");
    if (pins_.holds_by_block()[static_cast<std::size_t>(block)] > 0) state += " pinned";
    if (std::ranges::find(sources_.ids(), block) != sources_.ids().end()) state += " copied";
    states.push_back(state);
  }
  return states;
}

// ---- canonical form

namespace {

// Numbers in the order of first appearance.
class Names {
 public:
  std::string of(int thing) {
    return std::to_string(names_.try_emplace(thing, static_cast<int>(names_.size())).first->second);
  }

 private:
  std::map<int, int> names_;
};

template <class Numbers, class Name>
std::string list(const Numbers& numbers, Name&& name) {
  std::string text = "[";
  for (int number : numbers) text += name(number) + " ";
  return text + "]";
}

std::string plain(int number) {
  return std::to_string(number);
}

}  // namespace

std::string BlockWorld::key_of(const std::vector<std::size_t>& order, TokenId flip) const {
  Names blocks;
  Names private_domains;
  const auto block = [&](int id) { return blocks.of(id); };
  const auto token = [&](int id) { return plain(id ^ flip); };
  const auto path = [&](const Twin::Path& of) {
    const auto found = twin_.domains().find(of.first);
    if (found == twin_.domains().end()) return "gone" + list(of.second, token);
    const Twin::Domain& domain = found->second;
    return (domain.is_private ? "#" + private_domains.of(of.first) : "'" + domain.salt) + list(of.second, token);
  };
  std::string key;
  for (std::size_t i : order) {
    const Sequence& s = sequences_[i];
    key += (s.is_open ? "open " : "closed ") + path({s.domain, s.tokens}) + list(s.twin.ids, block) +
           plain(s.num_computed) + " " + plain(s.twin.num_sealed) + (twin_.is_valid(s.twin.tip) ? "" : " gone") + "; ";
  }
  for (const Pin& pin : twin_pins_) {
    key += "pin " + plain(static_cast<int>(pin.owner)) + path(pin.tip.path) + list(pin.ids, block) +
           (twin_.is_valid(pin.tip) ? "; " : " gone; ");
  }
  key += "sources " + list(twin_sources_, block);
  for (const Copy& copy : copies_) {
    key += " copy " + block(copy.from) + ">" + block(copy.to) + ":" + plain(copy.num_slots);
  }
  key += " cached " + list(twin_.cached(), block);
  std::set<std::string> entries;  // in an order that does not depend on the numbers of domains
  for (const auto& [tokens, entry] : twin_.entries()) entries.insert(path(tokens) + ">" + block(entry.block));
  for (const std::string& entry : entries) key += " " + entry;
  return key;
}

std::string BlockWorld::key() const {
  std::vector<std::size_t> order(sequences_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::string least;
  do {
    for (TokenId flip : {0, 1}) {
      const std::string key = key_of(order, flip);
      if (least.empty() || key < least) least = key;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

// ---- bytes

Met& Met::operator+=(const Met& other) {
  for (std::size_t i = 0; i < done.size(); ++i) done[i] += other.done[i];
  adopted_blocks += other.adopted_blocks;
  partial_hits += other.partial_hits;
  copies_on_write += other.copies_on_write;
  evictions += other.evictions;
  refused_rooms += other.refused_rooms;
  sealed_twice += other.sealed_twice;
  sealed_under_nothing += other.sealed_under_nothing;
  return *this;
}

namespace {

Op op_of(std::span<const std::uint8_t> bytes) {
  return {static_cast<OpKind>(bytes[0] % kNumOpKinds), bytes[1], bytes[2]};
}

std::string history(const BlockWorld::Shape& shape, std::span<const std::uint8_t> bytes) {
  std::string text = std::to_string(shape.num_blocks) + " blocks of " + std::to_string(shape.block_size) + ":";
  for (; bytes.size() >= 3; bytes = bytes.subspan(3)) text += " " + to_string(op_of(bytes));
  return text;
}

}  // namespace

std::optional<std::string> run_operations(std::span<const std::uint8_t> bytes, Met& met) {
  if (bytes.size() < 3) return std::nullopt;
  const int num_blocks = 1 + bytes[0] % 16;
  const int block_size = 1 + bytes[1] % 5;
  const BlockWorld::Shape shape = {.num_blocks = num_blocks,
                                   .block_size = block_size,
                                   .quota = bytes[2] / 8 % (num_blocks + 1),
                                   .max_tokens = std::min(num_blocks * block_size + 2, 30),
                                   .max_copies = bytes[2] % 8 > 0 ? 100 : 0};
  bytes = bytes.subspan(3);
  BlockWorld world(shape);
  std::size_t i = 0;
  try {
    for (; i + 3 <= bytes.size(); i += 3) {
      world.apply(op_of(bytes.subspan(i)));
      world.check();
    }
    met += world.met();
    world.end();
  } catch (const Fault& fault) {
    return fault.what() + std::string(" after ") + history(shape, bytes.first(std::min(i + 3, bytes.size())));
  }
  return std::nullopt;
}

}  // namespace folio
