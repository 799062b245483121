#include "server/acceptor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/open_files.h"
#include "base/thread_name.h"

namespace folio {
namespace {

constexpr int kFullPauseMs = 100;  // after an accept for which there was no file; trying at once would only spin

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int failure = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); failure != 0) {
    throw std::runtime_error("cannot listen on " + address + ": " + gai_strerror(failure));
  }
  return {found, &freeaddrinfo};
}

void set_port(sockaddr* address, int port) {
  const auto value = htons(static_cast<std::uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = value;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = value;
  }
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// A listening socket, whose options its connections inherit. -1: errno says why not.
int listen_on(const addrinfo& address, int silence_ms) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  // Connections of an earlier process that linger in the system do not keep the port; one that listens does.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
  if (address.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int failure = errno;
  close(fd);
  errno = failure;
  return -1;
}

bool lacks_files(int failure) {
  return failure == EMFILE || failure == ENFILE || failure == ENOBUFS || failure == ENOMEM;
}

}  // namespace

Acceptor::Acceptor(const std::string& address, int silence_ms, std::size_t num_spare_files)
    : num_spare_files_(num_spare_files) {
  const Addresses found = resolve(address);
  int failure = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (port_ != 0) set_port(each->ai_addr, port_);
    const int fd = listen_on(*each, silence_ms);
    if (fd < 0) {
      failure = errno;
      if (failure != EADDRINUSE) continue;  // a name may have addresses that this machine does not
      stop();
      break;
    }
    sockets_.push_back(fd);
    port_ = bound_port(fd);
  }
  if (sockets_.empty()) throw std::runtime_error("cannot listen on " + address + ": " + std::strerror(failure));
  wake_ = eventfd(0, EFD_CLOEXEC);
}

Acceptor::~Acceptor() {
  stop();
  close(wake_);
}

void Acceptor::start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void Acceptor::stop() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  for (const int fd : sockets_) close(fd);
  sockets_.clear();
}

void Acceptor::run() {
  name_thread("folio-accept");
  std::vector<pollfd> watched{{wake_, POLLIN, 0}};
  for (const int fd : sockets_) watched.push_back({fd, POLLIN, 0});
  while (true) {
    const bool pauses = std::exchange(is_full_, false);
    const nfds_t count = pauses ? 1 : watched.size();
    if (poll(watched.data(), count, pauses ? kFullPauseMs : -1) <= 0) continue;
    if (watched[0].revents != 0) return;
    for (std::size_t i = 1; i < count; ++i) {
      if (watched[i].revents != 0) accept_all(watched[i].fd);
    }
  }
}

// What waits on one socket.
void Acceptor::accept_all(int listening_fd) {
  while (!is_full_) {
    const int fd = accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      is_full_ = lacks_files(errno);
      // Any other failure is the one connection's: its peer is gone.
      if (is_full_) warnings_.write(std::string("grpc: a connection could not be taken: ") + std::strerror(errno));
      continue;
    }
    // The system gives the lowest free number: this one says how many are open.
    if (static_cast<std::size_t>(fd) >= max_connection_files(num_spare_files_)) {
      warnings_.write("grpc: too many connections, one is closed");
      close(fd);
      continue;
    }
    take_(listening_fd, fd);
  }
}

}  // namespace folio
