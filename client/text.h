// Text on its way in and out: pure functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace folio::client {

// Where the first byte stands that makes the text no UTF-8; nullopt: it is.
std::optional<std::size_t> first_bad_byte(std::string_view text);

// The text with U+FFFD for each byte that is part of no character.
std::string repaired(std::string_view text);

// What may go to a terminal, of text that is UTF-8: without control characters but line ends and tabs, those of Latin-1
// too (U+0080 to U+009F), so that no text can drive the terminal.
std::string printable(std::string_view text);

// A server's words as they may be shown: UTF-8 without control characters, on one line, cut at a character.
std::string shown_words(std::string_view text, std::size_t max_bytes);

// "131,072"
std::string count_text(std::int64_t count);

// "8", "0.25", "1000000": a number as one writes it, without an exponent up to twelve digits.
std::string number_text(double value);

// Columns that the text takes on a terminal, if each character takes one; without the sequences that set colours.
std::size_t display_width(std::string_view text);
// Its beginning in at most so many columns. What sets colours stays.
std::string cut_to_width(std::string_view text, std::size_t columns);

}  // namespace folio::client
