// Sequences, pins and pending copies over one BlockManager, beside its plain twin. Each operation is done on both and
// compared; check() compares all the rest, and what each slot's K/V were computed from. The random test, the model
// check and the fuzz target all drive this one world: an operation is three bytes, so any byte string is a history.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "block_manager/block_manager.h"
#include "block_manager/pins.h"
#include "tests/block_manager/twin.h"

namespace folio {

enum class OpKind : std::uint8_t {
  kOpen,         // a sequence begins in domain who % 4 with who / 4 tokens of the pattern `arg`, and adopts
  kRoom,         // make_room for `arg` positions
  kWrite,        // arg % 8 + 1 slots; new tokens are of the pattern arg / 8
  kSeal,         //
  kFork,         // at the arg-th position possible
  kClear,        // the blocks go back; a sequence whose domain is closed is over then
  kClose,        // the sequence's domain is closed; one without blocks is over then
  kReadopt,      // a cleared sequence begins again with the tokens it had
  kPin,          // the first arg % num_sealed + 1 blocks; owner and end by the high bits
  kUnpin,        // all of owner arg % 4
  kUnpinOldest,  //
  kExpire,       // time goes on
  kFlush,        //
  kForget,       // the sequence's blocks
  kGone,         // pins of forgotten content are released
  kCommit,       // the copies are over
  kLook,         // questions that change nothing
  kMove,         // the table is moved away and back
};
inline constexpr int kNumOpKinds = 18;

struct Op {
  OpKind kind{};
  std::uint8_t who = 0;
  std::uint8_t arg = 0;
};
std::string to_string(const Op& op);

// How often operations did something, and what came of it: so that it is known what was tested.
struct Met {
  std::array<std::int64_t, kNumOpKinds> done{};
  std::int64_t adopted_blocks = 0;
  std::int64_t partial_hits = 0;
  std::int64_t copies_on_write = 0;
  std::int64_t evictions = 0;
  std::int64_t refused_rooms = 0;
  std::int64_t sealed_twice = 0;  // content that had its entry already
  std::int64_t sealed_under_nothing = 0;

  Met& operator+=(const Met& other);
};

class BlockWorld {
 public:
  struct Shape {
    int num_blocks = 1;
    int block_size = 1;
    int quota = 1;  // of the pins
    int max_sequences = 4;
    int max_tokens = 8;
    int max_copies = 100;  // before a commit
    int max_pins = 100;
  };
  explicit BlockWorld(const Shape& shape);

  // False: there is nothing to do, and nothing was done. Throws Fault.
  bool apply(const Op& op);
  void check();  // throws Fault
  void end();    // everything is given back; throws Fault if a block is missing then

  // All that tells two worlds apart, but for the names of blocks, the order of sequences and which token is which.
  std::string key() const;
  // By block id: "free", "held", "indexed" or "cached", and " pinned", " copied" where it is.
  std::vector<std::string> block_states() const;
  const Met& met() const { return met_; }
  int num_sequences() const { return static_cast<int>(sequences_.size()); }

 private:
  struct Sequence {
    BlockTable table;
    Twin::Table twin;
    ContentRef root;
    int domain = 0;  // the twin's
    bool is_open = true;
    Tokens tokens;
    int num_computed = 0;
  };
  struct Pin {
    RequestId owner = 0;
    Twin::Tip tip;
    TimePoint until{};
    std::vector<BlockId> ids;
  };
  struct Copy {
    BlockId from = 0;
    BlockId to = 0;
    int num_slots = 0;
  };
  using Slots = std::vector<int>;  // [block id][slot]: the origin of its K/V, 0: none

  bool do_one(const Op& op);
  void take(BlockId block);
  bool open(const Op& op);
  void admit(Sequence& sequence);
  void copy_partial_hit(Sequence& sequence);
  bool make_room(Sequence& sequence, int num_tokens);
  bool write(Sequence& sequence, int count, int pattern);
  bool write_slot(Sequence& sequence, TokenId next);
  bool copy_on_write(Sequence& sequence, int position);
  bool seal(Sequence& sequence);
  bool fork(std::size_t i, int choice);
  bool clear(std::size_t i);
  bool close(std::size_t i);
  bool readopt(Sequence& sequence);
  bool pin(const Sequence& sequence, std::uint8_t arg);
  template <class Which>
  bool unpin(Which&& which);
  bool expire();
  bool flush();
  bool forget(const Sequence& sequence);
  bool commit();
  bool look(const Sequence& sequence, std::uint8_t arg);
  bool move(Sequence& sequence);

  // A number for a domain and the tokens that K/V were computed from: those of `before`, and one more.
  int origin(int before, TokenId token) const;
  int first_origin(int domain) const { return -domain; }
  bool may_copy() const { return static_cast<int>(twin_sources_.size()) < shape_.max_copies; }
  void run_copies(Slots& slots) const;
  int& slot(Slots& slots, BlockId block, std::int64_t position) const;
  void check_table(const BlockTable& table, const Twin::Table& twin) const;
  std::vector<const BlockTable*> tables() const;
  std::string key_of(const std::vector<std::size_t>& order, TokenId flip) const;

  const Shape shape_;
  BlockManager blocks_;
  Pins pins_;
  BlockTable sources_;
  Twin twin_;
  std::vector<Pin> twin_pins_;
  std::vector<BlockId> twin_sources_;
  std::vector<Sequence> sequences_;
  std::vector<Copy> copies_;
  Slots slots_;
  mutable std::map<std::pair<int, TokenId>, int> origins_;
  TimePoint now_{};
  Met met_;
};

// The world that the first bytes choose, and the operations of the others. Nothing when all is well, else what is not,
// with the operations up to there. Adds to `met`.
std::optional<std::string> run_operations(std::span<const std::uint8_t> bytes, Met& met);

}  // namespace folio
