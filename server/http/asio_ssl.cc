// The code of Asio's TLS, compiled here once.
#include <boost/asio/ssl/impl/src.hpp>
