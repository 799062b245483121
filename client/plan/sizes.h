// Sizes in words, and numbers that must not overflow on the way to them.
#pragma once
#include <cstdint>
#include <string>

#include "client/command_error.h"

namespace folio::client {

// "512 B", "22.5 KiB", "1.25 TiB": at most two digits after the point, no zeros at the end.
std::string size_text(std::uint64_t bytes);

// "2GiB", "1.5 TiB", "512MiB", "4096": a number of B, KiB, MiB, GiB or TiB. Throws UsageError naming `flag`.
std::uint64_t parse_size(const std::string& text, const std::string& flag);

// Both throw std::overflow_error: what is asked for is beyond 2^64 bytes.
std::uint64_t product(std::uint64_t a, std::uint64_t b);
std::uint64_t sum(std::uint64_t a, std::uint64_t b);

}  // namespace folio::client
