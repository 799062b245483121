#include "tests/simt/symbols.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace folio::simt {
namespace {

std::string program() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw std::runtime_error("addr2line: /proc/self/exe cannot be read");
  return {path.data(), static_cast<std::size_t>(length)};
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) throw std::runtime_error("cannot be started: " + command);
  std::string output;
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe.get())) output.append(part.data(), got);
  return output;
}

}  // namespace

std::string from_source_folder(const std::string& path) {
  constexpr std::string_view kSource = FOLIO_SIMT_SOURCE_DIR;
  if (const std::size_t up = path.rfind("../"); up != std::string::npos) return path.substr(up + 3);
  return path.starts_with(kSource) ? path.substr(kSource.size()) : path;
}

std::vector<std::string> source_lines(const std::vector<const void*>& sites) {
  std::ostringstream command;
  command << "addr2line -a -i -e '" << program() << "'" << std::hex;
  // A return address is behind its call, perhaps on the next line.
  for (const void* site : sites) command << " 0x" << reinterpret_cast<std::uintptr_t>(site) - 1;
  // For each address: itself, then one line a level of inlining, innermost first, perhaps with " (discriminator 2)".
  std::istringstream lines(output_of(command.str()));
  std::vector<std::string> found;
  std::string line;
  bool wanted = false;
  while (std::getline(lines, line)) {
    line = line.substr(0, line.find(' '));
    if (line.starts_with("0x")) {
      found.emplace_back("?");
      wanted = true;
    } else if (wanted && line.find("device_twin.h:") == std::string::npos) {
      found.back() = from_source_folder(line);
      wanted = false;
    }
  }
  found.resize(sites.size(), "?");
  return found;
}

std::string source_line(const void* site) {
  return source_lines({site}).front();
}

}  // namespace folio::simt
