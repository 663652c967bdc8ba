/* Drives reader.c as Python does, for sanitizers: requests are handed over and written, streams
 * come, are taken, paused, left and closed while a thread of servers reads and writes. Every byte
 * that is handed over is checked, in both directions.
 *
 *     make sanitize
 */
#include "reader.c"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>

enum { STREAMS = 48, ROUNDS = 6, MOST = 400000, RACE_S = 3, REQUEST = 6 << 20 };

struct link {
    int ours, theirs;
    unsigned seed;
    int64_t asked, heard; /* bytes of the request that was handed over, and those that came */
    int64_t due_ns, begun_ns, left_ns, written; /* when that was due, and what was said of it */
    int64_t length;      /* of what its server writes, then it closes */
    int64_t seen;        /* bytes that were handed over */
    int64_t leave_after; /* bytes after which the stream is left, whatever is still to come */
    int is_over;
    struct stream *stream;
};

static struct link links[STREAMS];

static void demand(int is_so, const char *what) {
    if (is_so) return;
    fprintf(stderr, "failed: %s (errno %d)\n", what, errno);
    abort();
}

static uint8_t byte_of(const struct link *link, int64_t at) {
    /* Often the end of an answer, so that it is split over reads in every way. */
    return at / 16 % 3 == 0 ? (uint8_t)LAST_CHUNK[at % 5] : (uint8_t)(at * 31 + link->seed);
}

static unsigned next_of(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

/* Read what came of a request; return whether that is all of it. */
static int hear(struct link *link) {
    static uint8_t piece[1 << 16];
    ssize_t count = recv(link->theirs, piece, sizeof piece, MSG_DONTWAIT);
    for (ssize_t at = 0; at < count; at++)
        demand(piece[at] == byte_of(link, link->heard++), "each byte is as it was handed over");
    demand(count <= 0 || now(CLOCK_MONOTONIC) >= link->due_ns, "no request is early");
    return link->heard == link->asked;
}

static void *serve(void *unused) {
    int64_t written[STREAMS] = {0};
    unsigned seed = 7;
    for (int left = STREAMS; left;) {
        for (int each = 0; each < STREAMS; each++) {
            struct link *link = &links[each];
            if (link->theirs < 0 || (link->heard < link->asked && !hear(link))) continue;
            uint8_t piece[20000];
            unsigned drawn = next_of(&seed) >> 8;
            size_t count = drawn % 16 ? drawn % 300 + 1 : drawn % sizeof piece + 1;
            size_t left_over = (size_t)(link->length - written[each]);
            if (count > left_over) count = left_over;
            for (size_t at = 0; at < count; at++)
                piece[at] = byte_of(link, written[each] + (int64_t)at);
            ssize_t sent = send(link->theirs, piece, count, MSG_DONTWAIT | MSG_NOSIGNAL);
            int is_gone = sent < 0 && errno != EAGAIN;
            if (sent > 0) written[each] += sent;
            if (is_gone || written[each] == link->length) {
                if (each % 7 == 3) { /* breaks the connection in place of closing it */
                    struct linger at_once = {1, 0};
                    setsockopt(link->theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
                }
                close(link->theirs);
                link->theirs = -1;
                left--;
            }
        }
        if (next_of(&seed) % 64 == 0) usleep(500);
    }
    return unused;
}

static void join(struct link *link, int listening, const struct sockaddr_in *place, int number,
                 unsigned seed) {
    int stamps = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 11;
    *link = (struct link){.seed = seed + (unsigned)number};
    link->length = (int64_t)(next_of(&seed) >> 4) % MOST;
    link->leave_after = number % 5 == 4 ? link->length / 2 : INT64_MAX;
    link->ours = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr *there = (const struct sockaddr *)place;
    demand(link->ours >= 0 && !connect(link->ours, there, sizeof *place), "connect");
    link->theirs = accept(listening, NULL, NULL);
    demand(link->theirs >= 0, "accept");
    setsockopt(link->ours, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps);
    if (number % 4 == 2) /* one fits in the socket, another is written in many parts */
        link->asked = number % 8 == 2 ? 500 : REQUEST;
    else
        demand(send(link->ours, "GET", 3, MSG_NOSIGNAL) == 3, "send");
}

static struct stream *follow(struct reader *reader, struct link *link) {
    if (!link->asked) return reader_watch(reader, link->ours);
    uint8_t *request = malloc((size_t)link->asked);
    for (int64_t at = 0; at < link->asked; at++) request[at] = byte_of(link, at);
    link->due_ns = now(CLOCK_MONOTONIC) + (int64_t)(link->seed % 8) * MS;
    struct stream *stream =
        reader_send(reader, link->ours, request, link->asked, link->due_ns);
    free(request);
    return stream;
}

static void check(struct reader *reader, struct link *link, int count) {
    const int64_t *numbers = reader_numbers(reader) + HEADER;
    const uint8_t *bytes = reader_bytes(reader);
    const int64_t *said = reader_numbers(reader) + 4;
    if (said[0]) link->begun_ns = said[0];
    if (said[1]) link->left_ns = said[1];
    link->written += said[2];
    demand(!link->begun_ns || link->begun_ns >= link->due_ns, "a write begins when it is due");
    demand(!link->left_ns || link->written == link->asked, "all has left when that is said");
    int64_t start = 0;
    for (int each = 0; each < count; each++, numbers += PER_READ) {
        int64_t end = numbers[2];
        demand(end >= start && end <= MOST_BYTES, "reads follow each other");
        demand(numbers[1] > 0, "each read has an instant");
        if (end == start) link->is_over = 1;
        for (; start < end; start++)
            demand(bytes[start] == byte_of(link, link->seen++), "each byte is as it was sent");
    }
}

static void leave(struct reader *reader, struct link *link) {
    check(reader, link, reader_leave(reader, link->stream));
    link->stream = NULL;
    close(link->ours);
}

static void play(struct reader *reader, int round) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof place;
    demand(!bind(listening, (struct sockaddr *)&place, sizeof place), "bind");
    demand(!listen(listening, STREAMS), "listen");
    getsockname(listening, (struct sockaddr *)&place, &length);
    for (int each = 0; each < STREAMS; each++)
        join(&links[each], listening, &place, each, (unsigned)round * 977u);
    close(listening);
    pthread_t server;
    for (int each = 0; each < STREAMS; each++) {
        struct link *link = &links[each];
        demand((link->stream = follow(reader, link)) != NULL, "watch");
        reader_expect(reader, link->stream, each % 3 ? 40 : each, each % 6 == 1);
    }
    demand(!pthread_create(&server, NULL, serve, NULL), "a thread of servers");
    for (int left = STREAMS; left;) {
        struct pollfd bell = {.fd = reader_bell(reader), .events = POLLIN};
        demand(poll(&bell, 1, 20000) == 1, "something comes within 20 s");
        struct stream *found;
        if (round % 2) usleep(2000); /* as if the interpreter were held */
        while ((found = reader_next(reader))) {
            struct link *link = links;
            while (link < links + STREAMS && link->stream != found) link++;
            demand(link < links + STREAMS, "nothing that was left is named");
            int taken = reader_take(reader, link->stream);
            check(reader, link, taken);
            if (taken < 0) link->is_over = 1;
            if (link->is_over || link->seen >= link->leave_after) {
                int may_lack = taken < 0 || !link->is_over || (link - links) % 7 == 3;
                demand(may_lack || link->seen == link->length, "all was read");
                demand(may_lack || !link->asked || link->left_ns, "the request has left");
                leave(reader, link);
                left--;
            } else if (taken > 0 && taken % 5 == 0) {
                reader_expect(reader, link->stream, taken % 64, taken % 2);
            }
        }
    }
    pthread_join(server, NULL);
}

/* Leave streams while the thread is about to tell of them: none may be told of once it is freed. */
enum { PAIRS = 64, WRITERS = 3 };
static int pairs[PAIRS][2];
static atomic_int is_raced;

static void *flood(void *unused) {
    while (!atomic_load(&is_raced))
        for (int each = 0; each < PAIRS; each++)
            (void)!send(pairs[each][1], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return unused;
}

/* Read all that came; return how much that was. */
static ssize_t drain(int file) {
    uint8_t piece[256];
    ssize_t count = recv(file, piece, sizeof piece, MSG_DONTWAIT);
    return count < 0 ? 0 : count;
}

static void race(struct reader *reader) {
    pthread_t writers[WRITERS];
    for (int each = 0; each < PAIRS; each++)
        demand(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[each]), "a pair");
    for (int each = 0; each < WRITERS; each++)
        demand(!pthread_create(&writers[each], NULL, flood, NULL), "a writer");
    for (int64_t end = now(CLOCK_MONOTONIC) + RACE_S * SECOND; now(CLOCK_MONOTONIC) < end;) {
        struct stream *streams[PAIRS];
        for (int each = 0; each < PAIRS; each++) {
            int file = pairs[each][0];
            int64_t due_ns = now(CLOCK_MONOTONIC) + each % 7 * (MS / 4);
            streams[each] = each % 2 ? reader_watch(reader, file)
                                     : reader_send(reader, file, (uint8_t *)"y", 1, due_ns);
            demand(streams[each] != NULL, "watch");
            reader_expect(reader, streams[each], 0, 1);
        }
        for (int times = 0; times < 3; times++)
            for (int each = 0; each < PAIRS; each++) reader_take(reader, streams[each]);
        for (int each = 0; each < PAIRS; each++) {
            reader_take(reader, streams[each]);
            reader_leave(reader, streams[each]);
        }
        for (int each = 0; each < PAIRS; each++) drain(pairs[each][1]);
        usleep(3000); /* in which the thread frees them */
        for (int each = 0; each < PAIRS; each++)
            demand(!drain(pairs[each][1]), "nothing is written once it was left");
        demand(!reader_next(reader), "nothing that was left is ready");
    }
    atomic_store(&is_raced, 1);
    for (int each = 0; each < WRITERS; each++) pthread_join(writers[each], NULL);
    for (int each = 0; each < PAIRS; each++) close(pairs[each][0]), close(pairs[each][1]);
}

int main(void) {
    struct reader *reader = reader_start();
    demand(reader != NULL, "start");
    race(reader);
    for (int round = 0; round < ROUNDS; round++) play(reader, round);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    demand(reader_watch(reader, listening) != NULL, "a stream that is never left");
    int64_t never_ns = now(CLOCK_MONOTONIC) + 600 * SECOND;
    demand(reader_send(reader, listening, (uint8_t *)"y", 1, never_ns) != NULL, "nor is this");
    reader_stop(reader);
    close(listening);
    demand((reader = reader_start()) != NULL, "start again");
    demand(!reader_watch(reader, 1 << 20), "no file, no stream");
    reader_stop(reader);
    puts("ok");
    return 0;
}
