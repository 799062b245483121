#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace folio {
namespace {

struct Shape {
  int threads;
  std::int64_t n;
  std::int64_t grain;
};

TEST(ThreadPool, EveryItemOnceInPiecesOfAtMostGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const Shape shape : {Shape{0, 1, 1}, {0, 7, 1}, {0, 7, 3}, {0, 64, 64}, {0, 65, 64}, {0, 1000, 1}}) {
      std::vector<int> touched(static_cast<std::size_t>(shape.n), 0);  // plain ints: a double visit is also a race
      std::atomic<bool> good{true};
      pool.parallel_for(shape.n, shape.grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        if (begin >= end || end - begin > shape.grain || worker < 0 || worker >= threads) good = false;
        for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
      });
      EXPECT_TRUE(good);
      EXPECT_EQ(touched, std::vector<int>(static_cast<std::size_t>(shape.n), 1)) << threads << ' ' << shape.n;
    }
  }
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(2);
  for (const std::int64_t n : {0, -5}) {
    pool.parallel_for(n, 4, [](std::int64_t, std::int64_t, int) { FAIL(); });
  }
}

TEST(ThreadPool, OnePieceRunsOnTheCaller) {
  ThreadPool pool(4);
  int calls = 0;
  pool.parallel_for(100, std::numeric_limits<std::int64_t>::max(),
                    [&](std::int64_t begin, std::int64_t end, int worker) {
                      EXPECT_EQ(begin, 0);
                      EXPECT_EQ(end, 100);
                      EXPECT_EQ(worker, 0);
                      ++calls;
                    });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, WorkersTakePartAndNumbersAreTheirOwn) {
  ThreadPool pool(3);
  std::vector<std::thread::id> who(3);
  std::atomic<int> arrived{0};
  // Each piece waits for the others: it returns only when three workers are inside at once.
  pool.parallel_for(3, 1, [&](std::int64_t, std::int64_t, int worker) {
    who[static_cast<std::size_t>(worker)] = std::this_thread::get_id();
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(who[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(who.begin(), who.end()).size(), 3U);
}

// Shares lie side by side, cover all pieces, differ by one at most, and share_of is their inverse.
TEST(ThreadPool, SharesAreEvenAndKnowTheirPieces) {
  for (int threads = 1; threads <= 9; ++threads) {
    const ThreadPool pool(threads);
    for (std::int64_t pieces = 0; pieces <= 40; ++pieces) {
      ASSERT_EQ(pool.first_piece(0, pieces), 0);
      ASSERT_EQ(pool.first_piece(threads, pieces), pieces);
      for (std::int64_t worker = 0; worker < threads; ++worker) {
        const std::int64_t begin = pool.first_piece(worker, pieces);
        const std::int64_t end = pool.first_piece(worker + 1, pieces);
        ASSERT_GE(end - begin, pieces / threads) << threads << ' ' << pieces << ' ' << worker;
        ASSERT_LE(end - begin, (pieces + threads - 1) / threads) << threads << ' ' << pieces << ' ' << worker;
        for (std::int64_t piece = begin; piece < end; ++piece) {
          ASSERT_EQ(pool.share_of(piece, pieces), worker) << threads << ' ' << pieces << ' ' << piece;
        }
      }
    }
  }
}

// The first piece of one share lasts until all other pieces are done: the rest of its share is taken over.
TEST(ThreadPool, WhoIsDoneHelpsTheOthers) {
  constexpr std::int64_t kPieces = 14;
  ThreadPool pool(3);
  for (std::int64_t slow = 0; slow < 3; ++slow) {
    const std::int64_t slow_piece = pool.first_piece(slow, kPieces);
    std::atomic<std::int64_t> done{0};
    pool.parallel_for(kPieces, 1, [&](std::int64_t piece, std::int64_t, int) {
      if (piece == slow_piece) {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (done < kPieces - 1 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
        EXPECT_EQ(done, kPieces - 1) << "nobody helped";
      }
      ++done;
    });
  }
}

// Short jobs back to back and with gaps around the length of the spin: where a wake-up could be lost.
TEST(ThreadPool, ManyJobsLoseNothing) {
  ThreadPool pool(4);
  std::mt19937 random(1);
  std::vector<std::int64_t> values(64);
  for (int job = 0; job < 3000; ++job) {
    const std::int64_t n = 1 + static_cast<std::int64_t>(random() % 64);
    pool.parallel_for(n, 1 + static_cast<std::int64_t>(random() % 4), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = i + job;
    });
    const std::int64_t sum = std::accumulate(values.begin(), values.begin() + n, std::int64_t{0});
    ASSERT_EQ(sum, n * (n - 1) / 2 + n * job);
    if (random() % 4 == 0) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 60);
      while (std::chrono::steady_clock::now() < until) {
      }
    }
  }
}

TEST(ThreadPool, BeginsAndEndsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, TheCallerMayChange) {
  ThreadPool pool(2);
  std::atomic<int> items{0};
  for (int i = 0; i < 20; ++i) {
    std::thread caller([&] {
      pool.parallel_for(10, 1,
                        [&](std::int64_t begin, std::int64_t end, int) { items += static_cast<int>(end - begin); });
    });
    caller.join();
  }
  EXPECT_EQ(items, 200);
}

TEST(ThreadPool, IdleWorkersUseNoCpu) {
  ThreadPool pool(4);
  pool.parallel_for(64, 1, [](std::int64_t, std::int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

TEST(ThreadPoolDeathTest, AnExceptionInAPieceEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.parallel_for(2, 1, [](std::int64_t, std::int64_t, int) { throw 1; });
      },
      "");
}

// Leaves the process with 3 when the pool says so.
void start_more_than_there_is_room_for() {
  constexpr rlim_t kStacksOfAHundred = rlim_t{1} << 30U;
  const rlimit some{kStacksOfAHundred, kStacksOfAHundred};
  setrlimit(RLIMIT_AS, &some);
  try {
    ThreadPool pool(1000);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s", error.what());
    std::exit(3);
  }
}

TEST(ThreadPoolDeathTest, ThreadsThatTheSystemDoesNotGiveAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than this test leaves";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_more_than_there_is_room_for(), testing::ExitedWithCode(3),
              "only [1-9][0-9]* of 1000 threads could be started");
}

TEST(ThreadPoolDeathTest, AWrongSizeIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ThreadPool pool(0), "at least the calling thread");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.parallel_for(2, 0, [](std::int64_t, std::int64_t, int) {});
      },
      "at least one item");
}

}  // namespace
}  // namespace folio
