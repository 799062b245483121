// Words in an SVG: escaped, and no wider than their place.
#pragma once
#include <string>
#include <string_view>

namespace folio::client {

// As the content of an XML element or attribute: & < > " ' as entities; bytes that are not UTF-8, and characters that
// XML forbids, as U+FFFD; line ends and tabs as spaces.
std::string xml_escaped(std::string_view text);

// An upper bound of the width of UTF-8 text in a sans-serif font of `size` pixels; nobody knows the reader's font.
double text_width(std::string_view text, double size);

// The longest beginning that is at most `width` wide, with "…" for what was left out.
std::string cut_to(std::string_view text, double size, double width);

}  // namespace folio::client
