#include "engine/text/chat_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/text/chat_helper_source.h"

namespace folio {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the child is: descriptor 0 the socket, 1 and 2 nowhere, all others closed; a process group of its own; no
// signal blocked or ignored. Everything between fork and exec is done by posix_spawn, so that other threads do not
// matter.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, socket, 0);
    posix_spawn_file_actions_addopen(&actions_, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnPlan() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int run(const std::string& program, std::vector<std::string> arguments, std::vector<std::string> environment,
          pid_t& pid) const {
    return posix_spawn(&pid, program.c_str(), &actions_, &attributes_, pointers(arguments).data(),
                       pointers(environment).data());
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> out;
    for (std::string& string : strings) out.push_back(string.data());
    out.push_back(nullptr);
    return out;
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::string system_reason(const char* what, int error) {
  return std::string(what) + ": " + std::strerror(error);
}

}  // namespace

std::string ChatHelper::spawn() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return system_reason("socketpair", errno);
  std::vector<std::string> environment = {"LC_ALL=C.UTF-8"};
  if (const char* zone = std::getenv("TZ")) environment.push_back(std::string("TZ=") + zone);
  // -I: nothing from the environment or the working directory is imported. -B: no byte code is written.
  const int error = SpawnPlan(ends[1]).run(options_.python, {options_.python, "-I", "-B", "-c", kChatHelperSource},
                                           std::move(environment), pid_);
  close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    pid_ = -1;
    stop();
    return system_reason(options_.python.c_str(), error);
  }
  // A helper that ends at once is seen when its answer is waited for.
  send_frame(options_.setup, steady_clock::now() + options_.start_limit);
  return {};
}

void ChatHelper::stop() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (socket_ >= 0) close(socket_);
  pid_ = -1;
  socket_ = -1;
  ready_ = false;
}

std::string ChatHelper::make_ready() {
  if (ready_) return {};
  if (pid_ < 0) {
    if (std::string why = spawn(); !why.empty()) return why;
  }
  char kind = 0;
  std::string text;
  const Io io = receive_frame(kind, text, steady_clock::now() + options_.start_limit);
  if (io == Io::kOk && kind == 'O') {
    ready_ = true;
    return {};
  }
  stop();
  if (io == Io::kOk && kind == 'S') return text;
  if (io == Io::kTimeout) return "not ready after " + std::to_string(options_.start_limit.count()) + " ms";
  return options_.python + " ended while starting";
}

ChatHelper::Reply ChatHelper::ask(std::string_view request) {
  // Twice, since the first may find a helper that someone killed while it was idle or starting.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (std::string why = make_ready(); !why.empty()) {
      if (attempt == 0) continue;
      return {Outcome::kNotStarted, std::move(why)};
    }
    const auto deadline = steady_clock::now() + options_.render_limit;
    char kind = 0;
    std::string text;
    Io io = send_frame(request, deadline);
    if (io == Io::kOk) io = receive_frame(kind, text, deadline);
    if (io == Io::kOk && kind == 'R') return {Outcome::kRendered, std::move(text)};
    if (io == Io::kOk && kind == 'X') return {Outcome::kRaised, std::move(text)};
    if (io == Io::kOk && kind == 'E') return {Outcome::kFailed, std::move(text)};
    stop();
    spawn();  // starts while nobody waits; a failure shows again, and is told, when it is needed
    if (io == Io::kTimeout) return {Outcome::kTimeout, {}};
  }
  return {Outcome::kDied, {}};
}

ChatHelper::Io ChatHelper::wait_for(short events, Deadline deadline) const {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    pollfd one{socket_, events, 0};
    const int count = poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (count > 0) return Io::kOk;
    if (count == 0) return Io::kTimeout;
    if (errno != EINTR) return Io::kLost;
  }
}

ChatHelper::Io ChatHelper::send(std::string_view bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      if (const Io io = wait_for(POLLOUT, deadline); io != Io::kOk) return io;
    } else if (errno != EINTR) {
      return Io::kLost;
    }
  }
  return Io::kOk;
}

ChatHelper::Io ChatHelper::send_frame(std::string_view text, Deadline deadline) const {
  std::array<char, 4> size{};
  for (std::size_t i = 0; i < size.size(); ++i) size[i] = static_cast<char>(text.size() >> (8 * i));
  const Io io = send({size.data(), size.size()}, deadline);
  return io == Io::kOk ? send(text, deadline) : io;
}

ChatHelper::Io ChatHelper::receive(char* bytes, std::size_t size, Deadline deadline) const {
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = recv(socket_, bytes + done, size - done, MSG_DONTWAIT);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      if (const Io io = wait_for(POLLIN, deadline); io != Io::kOk) return io;
    } else if (count == 0 || errno != EINTR) {
      return Io::kLost;
    }
  }
  return Io::kOk;
}

ChatHelper::Io ChatHelper::receive_frame(char& kind, std::string& text, Deadline deadline) const {
  std::array<char, 5> head{};
  if (const Io io = receive(head.data(), head.size(), deadline); io != Io::kOk) return io;
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) size |= static_cast<std::size_t>(static_cast<unsigned char>(head[i])) << (8 * i);
  if (size > options_.max_reply_bytes) return Io::kLost;
  kind = head[4];
  text.resize(size);
  return receive(text.data(), size, deadline);
}

}  // namespace folio
