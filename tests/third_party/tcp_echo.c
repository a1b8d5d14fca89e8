// SPDX-License-Identifier: BSD-2-Clause
// A TCP server that gives back what it gets, and a client that checks it. It knows nothing of RDMA:
// librspreload.so makes its sockets rsockets.
//   tcp_echo PORT           the server, for one client
//   tcp_echo PORT ROUNDS    the client
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kBytes = 1 << 16 };
static unsigned char g_sent[kBytes], g_got[kBytes];

static int failed(const char* what) {
    perror(what);
    return 1;
}

static int send_all(int fd, const unsigned char* from, size_t size) {
    while (size > 0) {
        const ssize_t sent = write(fd, from, size);
        if (sent <= 0) return -1;
        from += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static int serve(int fd, const struct sockaddr_in* at) {
    if (bind(fd, (const struct sockaddr*)at, sizeof *at) != 0) return failed("bind");
    if (listen(fd, 1) != 0) return failed("listen");
    const int client = accept(fd, NULL, NULL);
    if (client < 0) return failed("accept");
    size_t all = 0;
    for (ssize_t got; (got = read(client, g_got, sizeof g_got)) > 0; all += (size_t)got)
        if (send_all(client, g_got, (size_t)got) != 0) return failed("write");
    printf("server: %zu bytes\n", all);
    close(client);
    return 0;
}

static int ask(int fd, const struct sockaddr_in* at, unsigned rounds) {
    if (connect(fd, (const struct sockaddr*)at, sizeof *at) != 0) return failed("connect");
    for (unsigned round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < sizeof g_sent; ++i)
            g_sent[i] = (unsigned char)(i * 7 + round * 13 + (i >> 8));
        if (send_all(fd, g_sent, sizeof g_sent) != 0) return failed("write");
        for (size_t got = 0; got < sizeof g_got;) {
            const ssize_t more = read(fd, g_got + got, sizeof g_got - got);
            if (more <= 0) return failed("read");
            got += (size_t)more;
        }
        if (memcmp(g_sent, g_got, sizeof g_sent) != 0) {
            fprintf(stderr, "round %u came back as something else\n", round);
            return 1;
        }
    }
    shutdown(fd, SHUT_RDWR);
    printf("client: %u rounds\n", rounds);
    return 0;
}

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((unsigned short)atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return failed("socket");
    const int result = argc > 2 ? ask(fd, &at, (unsigned)atoi(argv[2])) : serve(fd, &at);
    close(fd);
    return result;
}
