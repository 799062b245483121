// The memory checks of the race build: every byte that kernels access has a record of who wrote it last and of who has
// read it since.
//
// Two accesses of one launch are ordered when one thread makes both, or threads of one CTA with a sync_cta() between
// them, or lanes of one warp with a sync_warp() between them. Barriers are for all threads of a CTA or of a warp, so
// counting them orders everything: a pair of counts a thread (Moment) takes the place of vector clocks. Two accesses
// that are not ordered, one of them a write, are a race: a fault even where the values come out right.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace folio::simt::memory {

struct Access {
  std::uint32_t cta = 0;  // as in Moment; 0: none
  std::uint32_t thread = 0;
  std::uint32_t cta_barriers = 0;
  std::uint32_t warp_barriers = 0;
  std::uint32_t site = 0;  // an address in the program, which is linked to the lowest 4 GiB
};

// Of one byte, or of the four of a word as long as they are accessed together.
struct Record {
  Access write;
  // The last reader since `write`, and one more that no write of the launch can be ordered behind together with it, if
  // there was any: of all readers these two are enough to see a race with a later write.
  Access read;
  Access other_read;
  std::uint32_t flying_cta = 0;  // whose copy is on its way here
};

// Records for a region of memory.
class Shadow {
 public:
  Shadow(const char* begin, std::size_t bytes);
  const char* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  // Calls visit(record) for the records of [at, at + bytes), which lies inside.
  template <class Visit>
  void for_each(const char* at, std::size_t bytes, Visit visit);

 private:
  struct Word {
    Record record;            // of all four bytes, while split is 0
    std::uint32_t split = 0;  // 1 + where its bytes' records are in split_
  };
  std::array<Record, 4>& split(Word& word);

  const char* begin_;  // a multiple of 4
  std::size_t bytes_;
  std::unique_ptr<Word[], void (*)(void*)> words_;  // from calloc: only what is accessed takes memory
  std::vector<std::array<Record, 4>> split_;
};

// An access by the kernel's own code, of the running thread.
void on_access(const void* at, std::size_t bytes, bool write, const void* site);

template <class Visit>
void Shadow::for_each(const char* at, std::size_t bytes, Visit visit) {
  auto offset = static_cast<std::size_t>(at - begin_);
  const std::size_t end = offset + bytes;
  while (offset < end) {
    Word& word = words_[offset / 4];
    const std::size_t in_word = offset % 4;
    const std::size_t count = end - offset < 4 - in_word ? end - offset : 4 - in_word;
    if (count == 4 && word.split == 0) {
      visit(word.record);
    } else {
      std::array<Record, 4>& records = split(word);
      for (std::size_t i = in_word; i < in_word + count; ++i) visit(records[i]);
    }
    offset += count;
  }
}

}  // namespace folio::simt::memory
