// Sends a load by its plan, and hands out a record of each request as it ends.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <vector>

#include "client/load_test/arrivals.h"
#include "client/load_test/record.h"
#include "client/load_test/stream_record.h"
#include "client/load_test/transport.h"
#include "client/load_test/workload.h"

namespace folio::client {

// When requests are sent. In an open loop `arrivals` says when each is due, whatever the server does; in a closed one
// the next is due as soon as one of `concurrency` callers is free.
struct SendPlan {
  std::optional<Arrivals> arrivals;          // an open loop
  int concurrency = 0;                       // closed: above 0. Open: at most so many at a time, 0: no limit
  double ramp_s = 0;                         // closed: callers begin one after the other over this time
  std::optional<double> duration_s;          // nothing is sent after it; what runs is read to its end
  std::optional<std::int64_t> num_requests;  // at most
};

struct RunResult {
  double duration_s = 0;   // from the start of the load to the end of the last request
  double sending_s = 0;    // from the start until nothing more was to be sent
  bool all_sent = false;   // sending ended with the last request of the plan
  bool stopped = false;    // by stop()
  bool timed_out = false;  // sending ended since the plan's duration was over
  // Open loop with a limit of concurrency: requests that were due before the end and were never sent.
  std::int64_t num_missed = 0;
};

class Runner {
 public:
  // In the thread of run(). `sent` is called after a request was sent, `ended` with its record.
  struct Observer {
    std::function<void()> sent;
    std::function<void(RequestRecord)> ended;
  };
  // REQUIRES a plan that ends: a duration, a number of requests, or a trace's arrivals.
  Runner(SendPlan plan, const Workload& workload, Transport& transport, Observer observer);

  // Once. Returns when every request that was sent has ended.
  RunResult run();
  // Any thread, also before run: nothing more is sent, and what runs is cancelled.
  void stop();

 private:
  // What to do next: send a request that was due and let go then, or wait until a moment (kNever: for what comes).
  struct Next {
    enum class Kind { kSend, kWait, kOver } kind = Kind::kOver;
    SteadyTime until{};
  };
  Next next(SteadyTime now) const;
  void send(SteadyTime due, SteadyTime ready);
  void advance_arrival();
  // Takes what has ended out of the mailbox. Waits for something to come until then, if nothing is there.
  void wait_and_reap(SteadyTime until);
  void reap(StreamRecord& stream);
  void wait_for_ends();
  std::int64_t count_missed();
  SteadyTime at(double seconds) const;  // from the start; kNever if that is beyond the clock

  const SendPlan plan_;
  const Workload& workload_;
  Transport& transport_;
  const Observer observer_;

  // Of run's thread.
  SteadyTime start_{};
  SteadyTime end_of_sending_{};
  double last_end_s_ = 0;
  std::optional<Arrivals> arrivals_;
  SteadyTime arrival_{};  // open: when the next request is due
  std::int64_t num_sent_ = 0;
  PlannedRequest upcoming_;                                                              // made before it is due
  std::priority_queue<SteadyTime, std::vector<SteadyTime>, std::greater<>> free_since_;  // of each free caller
  std::map<StreamRecord*, std::unique_ptr<StreamRecord>> running_;

  StreamRecord::Ended ended_;  // what streams call: into the mailbox
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StreamRecord*> mailbox_;  // ended, not yet taken
  bool stopped_ = false;
};

}  // namespace folio::client
