// Asio's own code, compiled here once.
#include <boost/asio/impl/src.hpp>
