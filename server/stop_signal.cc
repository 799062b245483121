#include "server/stop_signal.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/log.h"

namespace folio {
namespace {

// Whoever stops a process often signals it and its group: what comes so soon is the same wish, not a second one.
// Only after this time is the first one answered (and logged): what comes later is a second one.
constexpr auto kSameSignal = std::chrono::milliseconds(20);

}  // namespace

StopSignal::StopSignal(bool takes_hangup) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (takes_hangup) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  quit_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || quit_fd_ < 0) throw std::runtime_error(std::string("signalfd: ") + std::strerror(errno));
  thread_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
  const std::uint64_t one = 1;
  // An eventfd at 0 takes a 1 always.
  [[maybe_unused]] const auto written = write(quit_fd_, &one, sizeof one);
  thread_.join();
  close(signal_fd_);
  close(quit_fd_);
}

void StopSignal::watch() {
  bool seen = false;
  while (true) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {quit_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGHUP) {
      hang_up();
      continue;
    }
    if (seen) {
      log::warn("second signal: leaving at once");
      _exit(128 + static_cast<int>(info.ssi_signo));
    }
    seen = true;
    std::this_thread::sleep_for(kSameSignal);
    for (signalfd_siginfo same{}; poll(fds, 1, 0) > 0;) {
      [[maybe_unused]] const auto taken = read(signal_fd_, &same, sizeof same);
    }
    log::info(std::string(info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT") + ": stopping");
    request();
  }
}

void StopSignal::on_hangup(std::function<void()> action) {
  const std::lock_guard lock(hangup_mutex_);
  hangup_ = std::move(action);
}

void StopSignal::hang_up() {
  const std::lock_guard lock(hangup_mutex_);
  if (hangup_) hangup_();
}

void StopSignal::request() {
  {
    const std::lock_guard lock(mutex_);
    requested_ = true;
  }
  changed_.notify_all();
}

bool StopSignal::requested() const {
  const std::lock_guard lock(mutex_);
  return requested_;
}

void StopSignal::wait(const std::function<bool()>& other) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return requested_ || other(); });
}

void StopSignal::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace folio
