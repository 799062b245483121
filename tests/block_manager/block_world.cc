#include "tests/block_manager/block_world.h"

#include <algorithm>

namespace folio {
namespace {

Tokens pattern_tokens(int count, int pattern) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = pattern >> (i % 8) & 1;
  return tokens;
}

}  // namespace

BlockWorld::BlockWorld(const Shape& shape)
    : shape_(shape),
      blocks_(shape.num_blocks, shape.block_size),
      pins_(blocks_, shape.quota),
      sources_(blocks_.make_table({})),
      twin_(shape.num_blocks, shape.block_size),
      slots_(static_cast<std::size_t>((shape.num_blocks + 1) * shape.block_size)) {}

bool BlockWorld::apply(const Op& op) {
  const bool is_done = do_one(op);
  if (is_done) ++met_.done[static_cast<std::size_t>(op.kind)];
  return is_done;
}

bool BlockWorld::do_one(const Op& op) {
  switch (op.kind) {
    case OpKind::kOpen:
      return open(op);
    case OpKind::kUnpin:
      pins_.release(op.arg % 4U);
      return unpin([&](std::size_t i) { return twin_pins_[i].owner == op.arg % 4U; });
    case OpKind::kUnpinOldest:
      expect(pins_.release_oldest() == !twin_pins_.empty(), "release_oldest: the twin says otherwise");
      return unpin([](std::size_t i) { return i == 0; });
    case OpKind::kExpire:
      return expire();
    case OpKind::kFlush:
      return flush();
    case OpKind::kGone:
      pins_.release_gone();
      return unpin([&](std::size_t i) { return !twin_.is_valid(twin_pins_[i].tip); });
    case OpKind::kCommit:
      return commit();
    default:
      break;
  }
  if (sequences_.empty()) return false;
  const std::size_t i = op.who % sequences_.size();
  Sequence& sequence = sequences_[i];
  switch (op.kind) {
    case OpKind::kRoom:
      return make_room(sequence, op.arg % (shape_.max_tokens + 2));
    case OpKind::kWrite:
      return write(sequence, op.arg % 8 + 1, op.arg / 8);
    case OpKind::kSeal:
      return seal(sequence);
    case OpKind::kFork:
      return fork(i, op.arg);
    case OpKind::kClear:
      return clear(i);
    case OpKind::kClose:
      return close(i);
    case OpKind::kReadopt:
      return readopt(sequence);
    case OpKind::kPin:
      return pin(sequence, op.arg);
    case OpKind::kForget:
      return forget(sequence);
    case OpKind::kLook:
      return look(sequence, op.arg);
    default:
      return move(sequence);
  }
}

void BlockWorld::take(BlockId block) {
  if (twin_.num_free() == 0) ++met_.evictions;
  twin_.took(block);
}

// ---- sequences

bool BlockWorld::open(const Op& op) {
  if (num_sequences() == shape_.max_sequences) return false;
  static constexpr std::array<const char*, 3> kSalts = {"", "a", "b"};
  const std::size_t choice = op.who % 4U;
  const bool is_private = choice == kSalts.size();
  const ContentRef root = is_private ? blocks_.open_private_domain() : blocks_.open_domain(kSalts[choice]);
  const int domain = is_private ? twin_.open_private() : twin_.open(kSalts[choice]);
  sequences_.push_back({.table = blocks_.make_table(root),
                        .twin = {.tip = {.path = {domain, {}}}, .ids = {}},
                        .root = root,
                        .domain = domain,
                        .tokens = pattern_tokens(op.who / 4 % (shape_.max_tokens + 1), op.arg)});
  admit(sequences_.back());
  return true;
}

void BlockWorld::admit(Sequence& sequence) {
  const std::int64_t num_adopted = blocks_.adopt(sequence.table, sequence.tokens);
  twin_.adopt(sequence.twin, sequence.tokens);
  sequence.num_computed = static_cast<int>(sequence.twin.ids.size()) * shape_.block_size;
  met_.adopted_blocks += sequence.table.size();
  expect(num_adopted == sequence.num_computed, "adopt gave another number of tokens than the twin");
  check_table(sequence.table, sequence.twin);
  copy_partial_hit(sequence);
}

void BlockWorld::copy_partial_hit(Sequence& sequence) {
  const std::span<const TokenId> rest = std::span(sequence.tokens).subspan(sequence.num_computed);
  const PartialHit hit = blocks_.partial_hit(sequence.table, rest);
  expect(hit.num_tokens == twin_.num_common(sequence.twin.tip, rest, kNullBlock), "not the longest common part");
  if (hit.num_tokens == 0) return;
  expect(hit.num_tokens == twin_.num_common(sequence.twin.tip, rest, hit.block), "the block has not what is said");
  const int wanted = twin_.num_holders(hit.block) == 0 ? 2 : 1;
  if (!may_copy() || twin_.num_available() < wanted) return;
  blocks_.hold(hit.block, sources_);
  twin_.hold(hit.block);
  twin_sources_.push_back(hit.block);
  expect(make_room(sequence, sequence.num_computed + hit.num_tokens), "no room although there is");
  ++met_.partial_hits;
  copies_.push_back({hit.block, sequence.twin.ids.back(), hit.num_tokens});
  sequence.num_computed += hit.num_tokens;
}

bool BlockWorld::make_room(Sequence& sequence, int num_tokens) {
  const int wanted = (num_tokens + shape_.block_size - 1) / shape_.block_size - sequence.table.size();
  const bool is_room = wanted <= twin_.num_available();
  expect(blocks_.make_room(sequence.table, num_tokens) == is_room, "make_room: the twin says otherwise");
  if (!is_room) ++met_.refused_rooms;
  if (!is_room || wanted <= 0) return false;
  expect(sequence.table.size() == static_cast<int>(sequence.twin.ids.size()) + wanted, "make_room: a wrong size");
  for (BlockId block : sequence.table.ids().last(static_cast<std::size_t>(wanted))) {
    take(block);
    sequence.twin.ids.push_back(block);
  }
  return true;
}

bool BlockWorld::write(Sequence& sequence, int count, int pattern) {
  int num_written = 0;
  while (num_written < count && write_slot(sequence, pattern >> num_written % 5 & 1)) ++num_written;
  return num_written > 0;
}

// The next known token, or else `next`; into a block of its own.
bool BlockWorld::write_slot(Sequence& sequence, TokenId next) {
  const int position = sequence.num_computed;
  if (position >= shape_.max_tokens) return false;
  const auto i = static_cast<std::size_t>(position / shape_.block_size);
  if (i >= sequence.twin.ids.size()) {
    if (!make_room(sequence, position + 1)) return false;
  } else {
    const BlockId block = sequence.twin.ids[i];
    const bool is_own = twin_.num_holders(block) == 1 && !twin_.is_indexed(block);
    expect(blocks_.is_writable(sequence.table, position) == is_own, "is_writable: the twin says otherwise");
    if (!is_own && !copy_on_write(sequence, position)) return false;
  }
  if (static_cast<std::size_t>(position) == sequence.tokens.size()) sequence.tokens.push_back(next);
  run_copies(slots_);
  copies_.clear();
  const BlockId block = sequence.twin.ids[i];
  expect(twin_.num_holders(block) == 1 && !twin_.is_indexed(block), "a slot is written in a block of others");
  ++sequence.num_computed;
  int from = first_origin(sequence.domain);
  for (int p = 0; p < sequence.num_computed; ++p) from = origin(from, sequence.tokens[static_cast<std::size_t>(p)]);
  slot(slots_, block, position) = from;
  return true;
}

bool BlockWorld::copy_on_write(Sequence& sequence, int position) {
  if (!may_copy() || twin_.num_available() == 0) return false;
  BlockId& block = sequence.twin.ids[static_cast<std::size_t>(position / shape_.block_size)];
  expect(blocks_.make_writable(sequence.table, position, sources_) == block, "make_writable: another source");
  twin_sources_.push_back(block);
  const BlockId copy = sequence.table.ids()[static_cast<std::size_t>(position / shape_.block_size)];
  take(copy);
  ++met_.copies_on_write;
  copies_.push_back({block, copy, position % shape_.block_size});
  block = copy;
  return true;
}

bool BlockWorld::seal(Sequence& sequence) {
  const int before = sequence.twin.num_sealed;
  blocks_.seal(sequence.table, sequence.tokens, sequence.num_computed);
  twin_.seal(sequence.twin, sequence.tokens, sequence.num_computed);
  for (int i = before; i < sequence.twin.num_sealed; ++i) {
    if (!twin_.is_valid(sequence.twin.tip)) {
      ++met_.sealed_under_nothing;
    } else if (!twin_.is_indexed(sequence.twin.ids[static_cast<std::size_t>(i)])) {
      ++met_.sealed_twice;
    }
  }
  return sequence.twin.num_sealed > before;
}

bool BlockWorld::fork(std::size_t i, int choice) {
  const Sequence& from = sequences_[i];
  const int least = std::max(1, from.twin.num_sealed * shape_.block_size);
  const int most = std::min(from.table.size() * shape_.block_size, static_cast<int>(from.tokens.size()));
  if (num_sequences() == shape_.max_sequences || most == 0) return false;
  const int num_tokens = least + choice % (most - least + 1);
  run_copies(slots_);  // a copy of a copy that is dropped with the first would have nothing to copy
  copies_.clear();
  Sequence copy = {.table = blocks_.fork(from.table, num_tokens),
                   .twin = from.twin,
                   .root = from.root,
                   .domain = from.domain,
                   .is_open = false,
                   .tokens = Tokens(from.tokens.begin(), from.tokens.begin() + num_tokens),
                   .num_computed = std::min(from.num_computed, num_tokens)};
  copy.twin.ids.resize(static_cast<std::size_t>((num_tokens + shape_.block_size - 1) / shape_.block_size));
  for (BlockId block : copy.twin.ids) twin_.hold(block);
  sequences_.push_back(std::move(copy));
  return true;
}

bool BlockWorld::clear(std::size_t i) {
  Sequence& sequence = sequences_[i];
  if (sequence.twin.ids.empty()) return false;
  const auto& ids = sequence.twin.ids;
  std::erase_if(copies_, [&](const Copy& copy) { return std::find(ids.begin(), ids.end(), copy.to) != ids.end(); });
  sequence.table.clear();
  twin_.give_back(sequence.twin.ids);
  sequence.twin = {};
  sequence.num_computed = 0;
  if (!sequence.is_open) sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(i));
  return true;
}

bool BlockWorld::close(std::size_t i) {
  Sequence& sequence = sequences_[i];
  if (!sequence.is_open) return false;
  sequence.is_open = false;
  blocks_.close_domain(sequence.root);
  twin_.close(sequence.domain);
  if (sequence.twin.ids.empty()) sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(i));
  return true;
}

bool BlockWorld::readopt(Sequence& sequence) {
  if (!sequence.twin.ids.empty() || !sequence.is_open) return false;
  sequence.table = blocks_.make_table(sequence.root);
  sequence.twin = {.tip = {.path = {sequence.domain, {}}}, .ids = {}};
  admit(sequence);
  return true;
}

bool BlockWorld::move(Sequence& sequence) {
  const std::vector<BlockId> before(sequence.table.ids().begin(), sequence.table.ids().end());
  BlockTable away = std::move(sequence.table);
  expect(sequence.table.size() == 0 && sequence.table.num_sealed() == 0, "a moved table is not empty");
  sequence.table = std::move(away);
  return false;
}

bool BlockWorld::forget(const Sequence& sequence) {
  const std::size_t before = twin_.entries().size();
  blocks_.forget(sequence.table);
  for (BlockId block : sequence.twin.ids) twin_.drop_block(block);
  return twin_.entries().size() < before;
}

// ---- pins

bool BlockWorld::pin(const Sequence& sequence, std::uint8_t arg) {
  if (sequence.twin.num_sealed == 0 || static_cast<int>(twin_pins_.size()) == shape_.max_pins) return false;
  const int num_blocks = arg % 16 % sequence.twin.num_sealed + 1;
  const RequestId owner = arg / 16 % 4;
  const TimePoint until = arg / 64 == 3 ? kNoDeadline : now_ + Duration(arg / 64);
  const Twin::Tip tip = twin_.tip_at(sequence.twin, num_blocks);
  const ContentRef content = blocks_.content_of(sequence.table, num_blocks);
  const bool is_valid = twin_.is_valid(tip);
  const bool is_pinned = pins_.pin(owner, content, until);
  if (!is_valid) expect(!is_pinned, "what is gone was pinned");
  if (!is_valid) return false;
  const auto same =
      std::find_if(twin_pins_.begin(), twin_pins_.end(), [&](const Pin& pin) { return pin.tip.serial == tip.serial; });
  if (same != twin_pins_.end()) {
    expect(is_pinned, "what is pinned was refused");
    Pin renewed = *same;
    twin_pins_.erase(same);
    renewed.owner = owner;
    renewed.until = std::max(renewed.until, until);
    twin_pins_.push_back(renewed);
    return true;
  }
  Pin pin = {owner, tip, until, twin_.chain(tip)};
  std::set<BlockId> all(pin.ids.begin(), pin.ids.end());
  for (const Pin& other : twin_pins_) all.insert(other.ids.begin(), other.ids.end());
  const bool has_room = static_cast<int>(all.size()) <= shape_.quota;
  expect(is_pinned == has_room, "the quota: the twin says otherwise");
  for (BlockId block : pin.ids) twin_.hold(block);
  if (!has_room) twin_.give_back(pin.ids);  // a use all the same: cached blocks of the chain are evicted later now
  if (!has_room) return true;
  twin_pins_.push_back(std::move(pin));
  return true;
}

// The pins for which `which` holds go; the oldest first, as Pins does it.
template <class Which>
bool BlockWorld::unpin(Which&& which) {
  const std::size_t before = twin_pins_.size();
  for (std::size_t i = 0; i < before; ++i) {
    if (which(i)) twin_.give_back(twin_pins_[i].ids);
  }
  std::erase_if(twin_pins_, [](const Pin& pin) { return pin.ids.empty(); });
  return twin_pins_.size() < before;
}

bool BlockWorld::expire() {
  now_ += Duration(1);
  pins_.release_expired(now_);
  return unpin([&](std::size_t i) { return twin_pins_[i].until <= now_; });
}

bool BlockWorld::flush() {
  const std::size_t before = twin_.entries().size();
  blocks_.flush(pins_.holds_by_block());
  const auto is_pinned = [&](BlockId block) {
    return std::any_of(twin_pins_.begin(), twin_pins_.end(), [&](const Pin& pin) {
      return std::find(pin.ids.begin(), pin.ids.end(), block) != pin.ids.end();
    });
  };
  for (BlockId block = 1; block <= shape_.num_blocks; ++block) {
    if (!is_pinned(block)) twin_.drop_block(block);
  }
  return twin_.entries().size() < before;
}

bool BlockWorld::commit() {
  run_copies(slots_);
  copies_.clear();
  if (twin_sources_.empty()) return false;
  sources_.clear();
  twin_.give_back(twin_sources_);
  return true;
}

void BlockWorld::end() {
  copies_.clear();
  commit();
  pins_.release_all();
  unpin([](std::size_t) { return true; });
  while (!sequences_.empty()) {
    clear(0);
    if (!sequences_.empty() && sequences_[0].is_open && sequences_[0].twin.ids.empty()) close(0);
  }
  flush();
  check();
  expect(blocks_.num_free() == shape_.num_blocks, "not all blocks came back");
}

}  // namespace folio
