// A plain twin of the block manager: maps, lists and copies of tokens, slow and easy to believe. It says what the block
// manager must answer; which of the free blocks is handed out next is the one thing it leaves open, and is told.
#pragma once
#include <list>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace folio {

using Tokens = std::vector<TokenId>;

// What the block manager did is not what the twin expects.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw Fault(what);
}

class Twin {
 public:
  using Path = std::pair<int, Tokens>;  // domain, all tokens from its root on
  struct Tip {
    Path path;       // no tokens: the root
    int serial = 0;  // of the entry; 0 for the root and for a tip that is gone for good
  };
  struct Table {
    Tip tip;
    std::vector<BlockId> ids;
    int num_sealed = 0;
  };
  struct Domain {
    std::string salt;
    bool is_private = false;
    int num_users = 0;
  };
  struct Entry {
    BlockId block = 0;
    int serial = 0;
  };

  Twin(int num_blocks, int block_size);

  int open(const std::string& salt);
  int open_private();
  int find(const std::string& salt) const;  // 0: there is none
  void close(int domain);

  bool is_valid(const Tip& tip) const;
  // The blocks of the longest run of entries that begins with the tokens.
  std::vector<BlockId> run(const Tip& root, std::span<const TokenId> tokens) const;
  // How much of `rest` the best continuation of the tip has; that of one block, or of the best one (kNullBlock).
  int num_common(const Tip& tip, std::span<const TokenId> rest, BlockId block) const;

  void adopt(Table& table, std::span<const TokenId> tokens);
  void took(BlockId block);  // checks that its turn had come
  void hold(BlockId block);
  void give_back(std::vector<BlockId>& ids);  // the last one first
  void seal(Table& table, const Tokens& tokens, int num_computed);
  void drop(const Path& path);  // and all that continues it
  void drop_block(BlockId block);
  // Of a table's first num_blocks blocks; a tip that is not valid when there is none.
  Tip tip_at(const Table& table, int num_blocks) const;
  std::vector<BlockId> chain(const Tip& tip) const;

  int num_holders(BlockId block) const { return holders_[static_cast<std::size_t>(block)]; }
  bool is_indexed(BlockId block) const { return path_of_.count(block) > 0; }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_cached() const { return static_cast<int>(cached_.size()); }
  int num_available() const { return num_free() + num_cached(); }
  int block_size() const { return static_cast<int>(block_size_); }
  const std::map<Path, Entry>& entries() const { return entries_; }
  const std::list<BlockId>& cached() const { return cached_; }  // the next to be evicted first
  const std::map<int, Domain>& domains() const { return domains_; }

 private:
  bool has_entries(int domain) const;
  void forget_if_unused(int domain);

  const std::size_t block_size_;
  int last_serial_ = 0;
  std::map<int, Domain> domains_;
  std::map<Path, Entry> entries_;
  std::map<BlockId, Path> path_of_;
  std::vector<int> holders_;  // by block id
  std::set<BlockId> free_;
  std::list<BlockId> cached_;
};

}  // namespace folio
