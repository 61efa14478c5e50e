/** As much HTTP/1.1 as a testbed needs: a thread a connection, GET without a body, keep-alive. */
#pragma once

#include <functional>
#include <map>
#include <string>

namespace http {

constexpr int connections_max = 512;

struct request {
    std::string path;
    std::map<std::string, std::string> query;
    bool again = false; /**< a gateway sends it a second time, after it was cancelled */

    /** The number of that name, or `otherwise`. */
    double number(const std::string &name, double otherwise) const;
};

struct answer {
    int status;
    std::string text;
    std::string cancelled = {}; /**< what it was cancelled for holding up; empty: it was not */
};

/** Listens on 127.0.0.1, prints `ready PORT`, and serves for as long as the process lives; throws std::system_error if it cannot. */
[[noreturn]] void serve(int port, const std::function<answer(const request &)> &handler);

} // namespace http
