// A model check of the life of a block: every state that a small BlockManager can be in is visited, breadth first, by
// doing each operation on the real thing in each state found so far. In every one the invariants hold and the twin
// agrees, and blocks go from state to state exactly as drawn in block_manager.h. States count as one when only the
// names of blocks and the order of sequences differ.
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <set>
#include <unordered_map>

#include "tests/block_manager/block_world.h"

namespace folio {
namespace {

using Transition = std::pair<std::string, std::string>;

struct Exploration {
  std::size_t num_states = 0;
  std::size_t num_steps = 0;
  std::size_t depth = 0;
  bool is_complete = false;  // no operation leads to a state that was not visited
  std::set<std::string> block_states;
  std::set<Transition> transitions;  // of one block by one operation, pins and copies left out
};

// Without what is a matter of holders only: "indexed pinned copied" is "indexed".
std::string drawn(const std::string& state) {
  return state.substr(0, state.find(' '));
}

class Explorer {
 public:
  Explorer(const BlockWorld::Shape& shape, std::vector<Op> ops, std::size_t max_depth)
      : shape_(shape), ops_(std::move(ops)), max_depth_(max_depth) {}

  void run() {
    find(BlockWorld(shape_).key(), {}, 0);
    for (; !open_.empty(); open_.pop_front()) expand(open_.front());
    seen_.num_states = found_.size();
  }
  const Exploration& seen() const { return seen_; }

 private:
  // How a state was first reached: the state before it, and the operation.
  struct Step {
    std::size_t before = 0;
    Op op;
  };

  void find(const std::string& key, Step step, std::size_t depth) {
    if (!found_.insert(key).second) return;
    open_.push_back(steps_.size());
    steps_.push_back(step);
    seen_.depth = std::max(seen_.depth, depth);
  }

  std::vector<Op> path_to(std::size_t state) const {
    std::vector<Op> path;
    for (; state != 0; state = steps_[state].before) path.push_back(steps_[state].op);
    return {path.rbegin(), path.rend()};
  }

  void expand(std::size_t state) {
    const std::vector<Op> path = path_to(state);
    seen_.is_complete = path.size() < max_depth_;
    if (!seen_.is_complete) return;  // nor is any that is found later
    std::optional<BlockWorld> world;
    for (const Op& op : ops_) {
      if (!world) {
        world.emplace(shape_);
        for (const Op& earlier : path) world->apply(earlier);
      }
      const std::vector<std::string> before = world->block_states();
      try {
        const bool is_done = world->apply(op);
        world->check();
        if (!is_done) continue;
      } catch (const Fault& fault) {
        std::string history;
        for (const Op& earlier : path) history += to_string(earlier) + " ";
        throw Fault(fault.what() + std::string(" after ") + history + to_string(op));
      }
      ++seen_.num_steps;
      note(before, world->block_states());
      find(world->key(), {state, op}, path.size() + 1);
      world.reset();
    }
  }

  void note(const std::vector<std::string>& before, const std::vector<std::string>& after) {
    for (std::size_t block = 1; block < before.size(); ++block) {
      seen_.block_states.insert(after[block]);
      if (drawn(before[block]) != drawn(after[block])) {
        seen_.transitions.insert({drawn(before[block]), drawn(after[block])});
      }
    }
  }

  const BlockWorld::Shape shape_;
  const std::vector<Op> ops_;
  const std::size_t max_depth_;
  Exploration seen_;
  std::set<std::string> found_;
  std::vector<Step> steps_;
  std::deque<std::size_t> open_;
};

const std::set<Transition> kDrawn = {
    {"free", "held"},       // make_room, make_writable
    {"held", "free"},       // given back
    {"held", "indexed"},    // sealed
    {"indexed", "cached"},  // given back
    {"cached", "indexed"},  // adopted, pinned, copied from
    {"cached", "held"},     // evicted: taken for another content
    {"cached", "free"},     // forgotten
    {"indexed", "held"},    // forgotten
};
// A pin holds what is indexed, until it is released after that was forgotten; a copy's source may be anybody's.
const std::set<std::string> kStates = {"free",
                                       "held",
                                       "indexed",
                                       "cached",
                                       "indexed pinned",
                                       "held pinned",
                                       "held copied",
                                       "indexed copied",
                                       "indexed pinned copied",
                                       "held pinned copied"};

// One of each kind for either sequence; write of token 0 and of token 1.
std::vector<Op> small_ops() {
  std::vector<Op> ops = {{OpKind::kOpen, 0, 0}};
  for (std::uint8_t who = 0; who < 2; ++who) {
    for (OpKind kind :
         {OpKind::kSeal, OpKind::kFork, OpKind::kClear, OpKind::kClose, OpKind::kReadopt, OpKind::kForget}) {
      ops.push_back({kind, who, 0});
    }
    ops.push_back({OpKind::kWrite, who, 0});
    ops.push_back({OpKind::kWrite, who, 8});
    ops.push_back({OpKind::kPin, who, 0xc0});
    ops.push_back({OpKind::kPin, who, 0xc1});
  }
  for (OpKind kind : {OpKind::kUnpinOldest, OpKind::kFlush, OpKind::kGone, OpKind::kCommit}) {
    ops.push_back({kind, 0, 0});
  }
  return ops;
}

// What the sanitizers slow down is explored less far.
#ifdef NDEBUG
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif

Exploration explore(const BlockWorld::Shape& shape, std::size_t max_depth) {
  Explorer explorer(shape, small_ops(), max_depth);
  try {
    explorer.run();
  } catch (const Fault& fault) {
    ADD_FAILURE() << fault.what();
  }
  const Exploration& seen = explorer.seen();
  std::printf("%d blocks of %d: %zu states, %zu steps, depth %zu, %s\n", shape.num_blocks, shape.block_size,
              seen.num_states, seen.num_steps, seen.depth, seen.is_complete ? "complete" : "cut off there");
  return seen;
}

TEST(BlockLifecycle, EveryStateOfTwoBlocksOfTwoSlots) {
  const Exploration seen = explore({.num_blocks = 2,
                                    .block_size = 2,
                                    .quota = 2,
                                    .max_sequences = 2,
                                    .max_tokens = 3,
                                    .max_copies = 1,
                                    .max_pins = 1},
                                   kAll ? 1000 : 9);
  EXPECT_EQ(seen.is_complete, kAll);
  EXPECT_GE(seen.num_states, kAll ? 100000U : 1000U);
  EXPECT_EQ(seen.transitions, kDrawn);
  EXPECT_EQ(seen.block_states, kStates);
}

TEST(BlockLifecycle, ManyStatesOfThreeBlocksOfOneSlot) {
  const Exploration seen = explore({.num_blocks = 3,
                                    .block_size = 1,
                                    .quota = 2,
                                    .max_sequences = 2,
                                    .max_tokens = 3,
                                    .max_copies = 1,
                                    .max_pins = 1},
                                   kAll ? 10 : 7);
  EXPECT_GE(seen.num_states, kAll ? 15000U : 1000U);
  EXPECT_EQ(seen.transitions, kDrawn);
}

}  // namespace
}  // namespace folio
