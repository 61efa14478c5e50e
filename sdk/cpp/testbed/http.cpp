/** The HTTP of `http.hpp`. */
#include "http.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace http {

namespace {

constexpr std::size_t head_max = 8192;
std::atomic<int> connections = 0;

/* A file descriptor, closed once. */
class socket {
public:
    explicit socket(int fd) : fd_(fd) {}
    socket(socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    socket &operator=(socket &&) = delete;
    ~socket() {
        if (fd_ >= 0) ::close(fd_);
    }

    bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    /* Appends what has come to `in`; false at the end. */
    bool receive(std::string &in) const {
        char bytes[4096];
        ssize_t got;
        do got = ::recv(fd_, bytes, sizeof bytes, 0);
        while (got < 0 && errno == EINTR);
        if (got > 0) in.append(bytes, static_cast<std::size_t>(got));
        return got > 0;
    }

private:
    int fd_;
};

std::string text_of(const answer &answer, bool keep) {
    const char *reason = answer.status == 200 ? "OK" : answer.status == 404 ? "Not Found" : answer.status == 400 ? "Bad Request" : "Service Unavailable";
    return "HTTP/1.1 " + std::to_string(answer.status) + " " + reason + "\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(answer.text.size()) + "\r\n" +
           (keep ? "" : "Connection: close\r\n") + (answer.cancelled.empty() ? "" : "plimsoll-cancelled: " + answer.cancelled + "\r\n") + "\r\n" + answer.text;
}

/* What the first line asks for, if it is a GET. */
std::optional<request> parse(std::string_view line) {
    std::size_t last = line.rfind(' ');
    if (!line.starts_with("GET ") || last < 5 || last == line.npos) return {};
    std::string_view target = line.substr(4, last - 4);
    std::size_t mark = target.find('?');
    request asked{std::string(target.substr(0, mark)), {}, false};
    std::string_view rest = mark == target.npos ? "" : target.substr(mark + 1);
    while (!rest.empty()) {
        std::string_view pair = rest.substr(0, rest.find('&'));
        std::size_t equals = pair.find('=');
        if (equals != pair.npos) asked.query.emplace(pair.substr(0, equals), pair.substr(equals + 1));
        rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    }
    return asked;
}

void serve_one(const socket &client, const std::function<answer(const request &)> &handler) {
    std::string in;
    for (;;) {
        std::size_t end = in.find("\r\n\r\n");
        if (end == in.npos) {
            if (in.size() > head_max || !client.receive(in)) return;
            continue;
        }
        std::string head = in.substr(0, end + 2);
        in.erase(0, end + 4);
        bool keep = strcasestr(head.c_str(), "\nconnection: close") == nullptr;
        std::optional<request> asked = parse(std::string_view(head).substr(0, head.find("\r\n")));
        keep = keep && asked;
        if (asked) asked->again = strcasestr(head.c_str(), "\nplimsoll-rerun: 1\r") != nullptr;
        if (!client.send(text_of(asked ? handler(*asked) : answer{400, "only GET is answered here"}, keep)) || !keep) return;
    }
}

} // namespace

double request::number(const std::string &name, double otherwise) const {
    auto found = query.find(name);
    return found == query.end() ? otherwise : std::atof(found->second.c_str());
}

void serve(int port, const std::function<answer(const request &)> &handler) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    sockaddr_in address{};
    socklen_t size = sizeof address;
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    auto *at = reinterpret_cast<sockaddr *>(&address);
    if (bind(fd, at, size) != 0 || listen(fd, 1024) != 0 || getsockname(fd, at, &size) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot listen on 127.0.0.1:" + std::to_string(port));
    }
    std::printf("ready %d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    for (;;) {
        int accepted = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (accepted < 0) {
            /* Out of file descriptors, say: it passes. */
            if (errno != EINTR && errno != ECONNABORTED) usleep(10000);
            continue;
        }
        socket client(accepted);
        if (++connections > connections_max) {
            client.send(text_of({503, "too many connections"}, false));
            --connections;
            continue;
        }
        try {
            std::thread([client = std::move(client), &handler] {
                serve_one(client, handler);
                --connections;
            }).detach();
        } catch (const std::system_error &) {
            --connections; /* no thread to be had: the client sees its connection end */
        }
    }
}

} // namespace http
