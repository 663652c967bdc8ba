/* A thread that takes bytes off sockets, with the kernel's stamps, while Python does other things,
 * and writes requests whose instants are known ahead.
 *
 * Python opens and closes the sockets; this thread reads and writes, and judges no byte. It takes
 * what arrives on a socket between `reader_watch` and `reader_leave`, appends it to that stream's
 * buffer, and rests for a ms so that the streams share a wake-up. Python is told, through an
 * eventfd, of a stream
 *   - whose bytes end like the end mark or the last chunk of an answer, or whose connection ended
 *     or failed;
 *   - whose first bytes are no whole head of a 200 in chunks, which is all that this file knows of
 *     HTTP: from then on Python is told of each read, until it says otherwise;
 *   - each of whose reads Python wants to know of;
 * and, once it has heard of all these, for which a call may wait, of a stream
 *   - that holds BULK reads, or is about to end by the number of reads that Python expects;
 *   - that holds PAUSE_BYTES or PAUSE_READS, and is not read until Python has taken them;
 *   - that has held a read for WAIT_MS.
 *
 * A request that `reader_send` hands over is written at its instant, which no rest delays. Its
 * socket is read from then on, not before: a connection that ended meanwhile is found as after a
 * write of Python's. Of a write Python hears with what it takes next.
 *
 * A stream's lock is held around its recvmsg and send, so its descriptor is not touched once
 * `reader_leave` has returned. While this thread runs, it alone frees what an epoll may have named,
 * between two looks at its epolls: whatever an epoll names is still there. Locks are taken in one
 * order: the reader's, then a stream's.
 *
 * Apart from the thread, one thread at a time may call these functions. Nothing here knows Python;
 * agentload/live/reader.py loads this as a library.
 */
#define _GNU_SOURCE
#include <time.h> /* before errqueue.h, which needs it */
#include <linux/errqueue.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    VERSION = 4, /* of the functions below; agentload/live/reader.py names the one it calls */
    READ_BYTES = 16 << 10,
    PAUSE_BYTES = 32 << 10, /* as many of the smallest chunks as Python parses in some 10 ms */
    PAUSE_READS = 4096,
    MOST_BYTES = PAUSE_BYTES + READ_BYTES, /* the last read before a pause may be a whole one */
    BULK = 64,
    EARLY = 16, /* told so many reads before the end, so that few are left to parse at the end */
    KEPT_BYTES = 16 << 10, /* what has more room is freed when it has been taken */
    KEPT_READS = 256,
    BATCH = 256,
    REST_MS = 1,
    WAIT_MS = 1000, /* several reads of a slow stream cost Python as much as one */
    LOOK_MS = 250,  /* between two looks for reads that old */
    IN_A_ROW = 8,   /* streams named before those that can wait, until one of these is */
    AT_ONCE = 64, /* requests that are written before sockets are looked at again */
    HEADER = 7, /* numbers before those of the reads in what is handed over */
    PER_READ = 3,
    TOLD = 1, /* whether Python is told of a stream, and whether it is told of it first */
    FIRST = 3,
};
static const int64_t MS = 1000000, SECOND = 1000000000;

struct taken { /* one read */
    int64_t wall_ns; /* the kernel's stamp; 0 if it gave none */
    int64_t now_ns;  /* when it was read, on the monotonic clock */
    int64_t end;     /* of its bytes, within those that are held */
};

struct stream {
    pthread_mutex_t lock; /* of all that follows, but for the links */
    int file;
    int is_watched; /* an epoll names it */
    int is_hasty;   /* by the epoll whose reads are not left to rest */
    int is_eager;   /* Python wants to know of each read */
    int is_unsure;  /* it began unlike a stream, and Python has not said otherwise */
    int is_urgent;  /* what it holds must not wait in Python */
    int is_paused;  /* not watched until Python has taken what it holds */
    int has_begun;  /* bytes have come */
    int failure; /* the errno that is still to be told */
    int64_t read, handed, near; /* reads so far; those taken; those after which the end is near */
    uint8_t tail[7], *bytes; /* as long as the longest of the ends */
    size_t held, room;
    struct taken *reads;
    int count, places;
    int64_t sent_offset, sent_wall_ns, sent_now_ns; /* the last send stamp; wall time 0: none */
    uint8_t *request; /* what must be written, up to its end; NULL once that is over */
    size_t length, written;
    int64_t begun_ns, left_ns, newly_written; /* of a write, until they are handed over; 0: none */
    /* links, under the reader's lock */
    int64_t due_ns; /* when to write the request */
    struct stream *before, *after, *ready_before, *ready_after, *due_before, *due_after, *next_gone;
    int is_due; /* in the ring of requests that wait for their instant */
    int is_ready; /* TOLD or FIRST: in which of the two rings of those to tell of */
    int is_gone;  /* was left: the thread may still be about to tell of it, and must not */
};

struct reader {
    pthread_t thread;
    atomic_int is_stopping, has_gone;
    int epoll, hasty, both, control, timer, alarm, bell;
    pthread_mutex_t lock;
    struct stream all, first, ready, due, *gone; /* rings around themselves, but for the last */
    int in_a_row; /* streams that were named before some that can wait */
    uint8_t scratch[READ_BYTES], own_scratch[READ_BYTES];
    /* what was taken last, for Python to read */
    int64_t numbers[HEADER + PER_READ * PAUSE_READS];
    uint8_t bytes[MOST_BYTES];
};

static const char LAST_CHUNK[] = "0\r\n\r\n";
/* Some servers send no last chunk: the event [DONE] ends a chunk, with either kind of line. */
static const char *const ENDS[] = {LAST_CHUNK, "]\n\n\r\n", "]\r\n\r\n\r\n"};

static int64_t now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * SECOND + at.tv_nsec;
}

/* --- what a stream is watched by, under its lock --- */

static int watch_file(int epoll, int file, uint32_t events, void *named) {
    struct epoll_event event = {.events = events, .data.ptr = named};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event);
}

static int epoll_of(struct reader *reader, struct stream *stream) {
    return stream->is_hasty ? reader->hasty : reader->epoll;
}

/* Watch a stream; if that cannot be, its connection has failed. */
static void watch(struct reader *reader, struct stream *stream) {
    uint32_t events = stream->request ? EPOLLIN | EPOLLOUT : EPOLLIN;
    stream->is_watched = !watch_file(epoll_of(reader, stream), stream->file, events, stream);
    if (!stream->is_watched) stream->failure = errno;
}

static void unwatch(struct reader *reader, struct stream *stream) {
    if (stream->is_watched) epoll_ctl(epoll_of(reader, stream), EPOLL_CTL_DEL, stream->file, NULL);
    stream->is_watched = 0;
}

static void hasten(struct reader *reader, struct stream *stream) {
    if (stream->is_hasty) return;
    int was_watched = stream->is_watched;
    unwatch(reader, stream);
    stream->is_hasty = 1;
    if (was_watched) watch(reader, stream);
}

/* --- telling Python --- */

static int is_any_ready(struct reader *reader) {
    return reader->first.ready_after != &reader->first ||
           reader->ready.ready_after != &reader->ready;
}

static void unpost_locked(struct stream *stream) {
    if (!stream->is_ready) return;
    stream->is_ready = 0;
    stream->ready_before->ready_after = stream->ready_after;
    stream->ready_after->ready_before = stream->ready_before;
}

static void post_locked(struct reader *reader, struct stream *stream, int how) {
    if (stream->is_ready >= how || stream->is_gone) return;
    int was_any = is_any_ready(reader);
    struct stream *ring = how == FIRST ? &reader->first : &reader->ready;
    unpost_locked(stream);
    stream->is_ready = how;
    stream->ready_before = ring->ready_before;
    stream->ready_after = ring;
    stream->ready_before->ready_after = ring->ready_before = stream;
    if (!was_any) {
        uint64_t one = 1;
        (void)!write(reader->bell, &one, sizeof one);
    }
}

static void post(struct reader *reader, struct stream *stream, int how) {
    if (!how) return;
    pthread_mutex_lock(&reader->lock);
    post_locked(reader, stream, how);
    pthread_mutex_unlock(&reader->lock);
}

/* --- reading, under the stream's lock --- */

static int64_t stamp(struct msghdr *message) {
    for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each))
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SO_TIMESTAMPING) {
            struct timespec at;
            memcpy(&at, CMSG_DATA(each), sizeof at);
            if (at.tv_sec) return at.tv_sec * SECOND + at.tv_nsec;
        }
    return 0;
}

/* Take all send stamps off the error queue, which would otherwise wake the epoll for ever; return
 * whether there was any. */
static int take_sent(struct stream *stream) {
    for (int was_any = 0;; was_any = 1) {
        _Alignas(struct cmsghdr) char control[512];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        ssize_t found = recvmsg(stream->file, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        /* A Unix socket has no such queue, and takes this for a read of no bytes. */
        if (found < 0 || !(message.msg_flags & MSG_ERRQUEUE)) return was_any;
        int64_t wall_ns = stamp(&message);
        struct cmsghdr *each = CMSG_FIRSTHDR(&message);
        for (; each; each = CMSG_NXTHDR(&message, each)) {
            struct sock_extended_err said;
            int is_said = (each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_RECVERR) ||
                          (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_RECVERR);
            if (!is_said) continue;
            memcpy(&said, CMSG_DATA(each), sizeof said);
            if (wall_ns && said.ee_origin == SO_EE_ORIGIN_TIMESTAMPING &&
                said.ee_info == SCM_TSTAMP_SND) {
                stream->sent_offset = said.ee_data;
                stream->sent_wall_ns = wall_ns;
                stream->sent_now_ns = now(CLOCK_MONOTONIC);
            }
        }
    }
}

static int has_room(struct stream *stream, size_t more) {
    if (stream->held + more > stream->room) {
        size_t room = stream->room ? stream->room : 2048;
        while (room < stream->held + more) room *= 2;
        uint8_t *bytes = realloc(stream->bytes, room);
        if (!bytes) return 0;
        stream->bytes = bytes;
        stream->room = room;
    }
    if (stream->count == stream->places) {
        int places = stream->places ? 2 * stream->places : 16;
        struct taken *reads = realloc(stream->reads, places * sizeof *reads);
        if (!reads) return 0;
        stream->reads = reads;
        stream->places = places;
    }
    return 1;
}

static int ends_like_an_answer(struct stream *stream, const uint8_t *bytes, size_t count) {
    size_t length = sizeof stream->tail;
    if (count >= length) {
        memcpy(stream->tail, bytes + count - length, length);
    } else {
        memmove(stream->tail, stream->tail + count, length - count);
        memcpy(stream->tail + length - count, bytes, count);
    }
    for (size_t each = 0; each < sizeof ENDS / sizeof *ENDS; each++) {
        size_t last = strlen(ENDS[each]);
        if (!memcmp(stream->tail + length - last, ENDS[each], last)) return 1;
    }
    return 0;
}

/* Tell whether bytes begin with a whole head that says: 200, and the body comes in chunks. */
static int is_ordinary(const uint8_t *bytes, size_t count) {
    static const char status[] = "HTTP/1.1 200", name[] = "transfer-encoding:";
    static const char chunked[] = "chunked";
    const uint8_t *end = memmem(bytes, count, "\r\n\r\n", 4);
    if (!end || count < sizeof status || memcmp(bytes, status, sizeof status - 1)) return 0;
    for (const uint8_t *line = memmem(bytes, end - bytes, "\r\n", 2); line;
         line = memmem(line, end - line, "\r\n", 2)) {
        line += 2;
        size_t named = sizeof name - 1;
        if ((size_t)(end - line) < named || strncasecmp((const char *)line, name, named)) continue;
        const uint8_t *value = line + named;
        while (value < end && *value == ' ') value++;
        size_t length = sizeof chunked - 1;
        return (size_t)(end - value) >= length &&
               !strncasecmp((const char *)value, chunked, length) && value[length] == '\r';
    }
    return 0;
}

static void end(struct reader *reader, struct stream *stream, int failure) {
    stream->failure = failure;
    stream->is_urgent = 1;
    unwatch(reader, stream);
}

/* Note a read of bytes; return whether to tell Python of it: 0, TOLD or FIRST. */
static int keep(struct reader *reader, struct stream *stream, const uint8_t *bytes, size_t count,
                int64_t wall_ns) {
    if (!has_room(stream, count)) {
        end(reader, stream, ENOMEM);
        return FIRST;
    }
    if (count) memcpy(stream->bytes + stream->held, bytes, count);
    stream->held += count;
    stream->reads[stream->count++] = (struct taken){
        .wall_ns = wall_ns, .now_ns = now(CLOCK_MONOTONIC), .end = (int64_t)stream->held};
    stream->read++;
    if (!count) {
        end(reader, stream, 0);
        return FIRST;
    }
    if (!stream->has_begun) {
        stream->has_begun = 1;
        stream->is_unsure = !is_ordinary(bytes, count);
    }
    int is_end = ends_like_an_answer(stream, bytes, count) || stream->is_unsure;
    stream->is_urgent |= is_end;
    if (stream->held >= PAUSE_BYTES || stream->count == PAUSE_READS) {
        unwatch(reader, stream);
        stream->is_paused = stream->is_urgent = 1;
    } else if (stream->read >= stream->near) {
        hasten(reader, stream);
    }
    if (is_end || stream->is_eager || stream->is_paused || stream->failure) return FIRST;
    int is_much = stream->is_urgent || stream->count >= BULK;
    return is_much || stream->read == stream->near - EARLY ? TOLD : 0;
}

/* Read once; return whether to tell Python, as `keep` does. */
static int read_once(struct reader *reader, struct stream *stream, uint8_t *scratch) {
    _Alignas(struct cmsghdr) char control[256];
    struct iovec into = {.iov_base = scratch, .iov_len = READ_BYTES};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t count = recvmsg(stream->file, &message, MSG_DONTWAIT);
    if (count >= 0) return keep(reader, stream, scratch, (size_t)count, stamp(&message));
    if (errno == EAGAIN || errno == EINTR) return 0;
    end(reader, stream, errno);
    return FIRST;
}

/* --- writing --- */

static void forget_request(struct stream *stream) {
    free(stream->request);
    stream->request = NULL;
}

/* Write what the socket takes, under the stream's lock. Of a failure the next read tells. */
static void write_some(struct stream *stream) {
    while (stream->request && stream->written < stream->length) {
        ssize_t count = send(stream->file, stream->request + stream->written,
                             stream->length - stream->written, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count >= 0) {
            stream->written += (size_t)count;
            stream->newly_written += count;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            forget_request(stream);
        }
    }
    if (!stream->request) return;
    stream->left_ns = now(CLOCK_MONOTONIC);
    forget_request(stream);
}

/* Set the alarm to the first instant at which a request is due, under the reader's lock. */
static void set_alarm(struct reader *reader) {
    struct itimerspec at = {{0, 0}, {0, 0}}; /* which silences it */
    if (reader->due.due_after != &reader->due) {
        int64_t due_ns = reader->due.due_after->due_ns;
        at.it_value = (struct timespec){due_ns / SECOND, due_ns % SECOND};
    }
    timerfd_settime(reader->alarm, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Take a stream out of the ring of those that are due, under the reader's lock. */
static void undue_locked(struct stream *stream) {
    if (!stream->is_due) return;
    stream->is_due = 0;
    stream->due_before->due_after = stream->due_after;
    stream->due_after->due_before = stream->due_before;
}

/* Put a stream before those that are due later, under the reader's lock. */
static void await_locked(struct reader *reader, struct stream *stream) {
    struct stream *last = reader->due.due_before;
    while (last != &reader->due && last->due_ns > stream->due_ns) last = last->due_before;
    stream->is_due = 1;
    stream->due_before = last;
    stream->due_after = last->due_after;
    last->due_after = stream->due_after->due_before = stream;
    if (last == &reader->due) set_alarm(reader);
}

/* Begin to write a request, and read its socket from now on. Python may have left the stream. */
static void begin(struct reader *reader, struct stream *stream) {
    pthread_mutex_lock(&stream->lock);
    if (stream->request) {
        stream->begun_ns = now(CLOCK_MONOTONIC);
        write_some(stream);
        watch(reader, stream);
    }
    int how = stream->failure ? FIRST : 0;
    pthread_mutex_unlock(&stream->lock);
    post(reader, stream, how);
}

static void write_due(struct reader *reader) {
    pthread_mutex_lock(&reader->lock);
    for (int left = AT_ONCE; left; left--) {
        struct stream *first = reader->due.due_after;
        if (first == &reader->due || first->due_ns > now(CLOCK_MONOTONIC)) break;
        undue_locked(first);
        pthread_mutex_unlock(&reader->lock);
        begin(reader, first); /* only this thread frees it */
        pthread_mutex_lock(&reader->lock);
    }
    set_alarm(reader);
    pthread_mutex_unlock(&reader->lock);
}

/* --- the thread --- */

/* Read a stream. If Python has its lock, it may have been put off the core with it, and all others
 * would wait: the next look finds this one again. A hasty one would be found at once and again. */
static void readable(struct reader *reader, struct stream *stream, uint32_t events, int is_hasty) {
    int how = 0;
    if (is_hasty)
        pthread_mutex_lock(&stream->lock);
    else if (pthread_mutex_trylock(&stream->lock))
        return;
    if (stream->is_watched) {
        if (stream->request && events & EPOLLOUT) {
            write_some(stream);
            if (!stream->request) { /* wait for bytes alone from now on */
                unwatch(reader, stream);
                watch(reader, stream);
                how = stream->failure ? FIRST : 0;
            }
        }
        int was_sent = events & EPOLLERR && take_sent(stream);
        if (!was_sent || events != EPOLLERR) how |= read_once(reader, stream, reader->scratch);
    }
    pthread_mutex_unlock(&stream->lock);
    post(reader, stream, how);
}

static void tell_of_old(struct reader *reader) {
    int64_t before_ns = now(CLOCK_MONOTONIC) - WAIT_MS * MS;
    pthread_mutex_lock(&reader->lock);
    for (struct stream *each = reader->all.after; each != &reader->all; each = each->after) {
        pthread_mutex_lock(&each->lock);
        int is_old = each->count && each->reads[0].now_ns < before_ns;
        pthread_mutex_unlock(&each->lock);
        if (is_old) post_locked(reader, each, TOLD);
    }
    pthread_mutex_unlock(&reader->lock);
}

static int look(struct reader *reader, int epoll, int wait_ms) {
    struct epoll_event found[BATCH];
    int count = epoll_wait(epoll, found, BATCH, wait_ms);
    for (int each = 0; each < count; each++) {
        void *named = found[each].data.ptr;
        uint64_t times;
        if (named == &reader->control)
            (void)!read(reader->control, &times, sizeof times);
        else if (named == &reader->timer) {
            if (read(reader->timer, &times, sizeof times) == sizeof times) tell_of_old(reader);
        } else if (named == &reader->alarm) {
            if (read(reader->alarm, &times, sizeof times) == sizeof times) write_due(reader);
        } else if (named != &reader->both)
            readable(reader, named, found[each].events, epoll == reader->hasty);
    }
    return count;
}

static void free_stream(struct stream *stream) {
    pthread_mutex_destroy(&stream->lock);
    forget_request(stream);
    free(stream->bytes);
    free(stream->reads);
    free(stream);
}

static void bury(struct reader *reader) {
    pthread_mutex_lock(&reader->lock);
    struct stream *gone = reader->gone;
    reader->gone = NULL;
    atomic_store(&reader->has_gone, 0);
    pthread_mutex_unlock(&reader->lock);
    while (gone) {
        struct stream *next = gone->next_gone;
        free_stream(gone);
        gone = next;
    }
}

static void *run(void *given) {
    struct reader *reader = given;
    while (!atomic_load(&reader->is_stopping)) {
        if (atomic_load(&reader->has_gone)) bury(reader);
        int count = look(reader, reader->epoll, 0);
        if (count <= 0) {
            look(reader, reader->both, -1); /* sleep until there is something anywhere */
            look(reader, reader->hasty, 0);
            continue;
        }
        /* Rest, until a hasty one comes; a full batch has left some behind, which must not wait. */
        look(reader, reader->hasty, count < BATCH ? REST_MS : 0);
    }
    return NULL;
}

/* --- what Python calls --- */

int reader_version(void) { return VERSION; }

/* What Python has to know of the sizes of what is handed over. */
const int reader_sizes[] = {MOST_BYTES, PAUSE_READS, HEADER, PER_READ};

/* Free a reader whose thread does not run. */
static void dispose(struct reader *reader) {
    int files[] = {reader->epoll, reader->hasty, reader->both, reader->control,
                   reader->timer, reader->alarm, reader->bell};
    for (size_t each = 0; each < sizeof files / sizeof *files; each++)
        if (files[each] >= 0) close(files[each]);
    bury(reader);
    for (struct stream *each = reader->all.after, *next; each != &reader->all; each = next) {
        next = each->after;
        free_stream(each);
    }
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

/* Pass on a descriptor that was made; note why it could not be, if nothing failed before. */
static int made(int file, int *failure) {
    if (file < 0 && !*failure) *failure = errno;
    return file;
}

/* Start a thread; return NULL with errno where the system cannot. */
struct reader *reader_start(void) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    pthread_mutex_init(&reader->lock, NULL);
    reader->all.before = reader->all.after = &reader->all;
    reader->first.ready_before = reader->first.ready_after = &reader->first;
    reader->ready.ready_before = reader->ready.ready_after = &reader->ready;
    reader->due.due_before = reader->due.due_after = &reader->due;
    int failure = 0;
    reader->epoll = made(epoll_create1(EPOLL_CLOEXEC), &failure);
    reader->hasty = made(epoll_create1(EPOLL_CLOEXEC), &failure);
    reader->both = made(epoll_create1(EPOLL_CLOEXEC), &failure);
    reader->control = made(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &failure);
    reader->bell = made(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), &failure);
    reader->timer = made(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), &failure);
    reader->alarm = made(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), &failure);
    struct itimerspec every = {{0, LOOK_MS * MS}, {0, LOOK_MS * MS}};
    if (!failure && (timerfd_settime(reader->timer, 0, &every, NULL) ||
                     watch_file(reader->hasty, reader->control, EPOLLIN, &reader->control) ||
                     watch_file(reader->hasty, reader->timer, EPOLLIN, &reader->timer) ||
                     watch_file(reader->hasty, reader->alarm, EPOLLIN, &reader->alarm) ||
                     watch_file(reader->both, reader->epoll, EPOLLIN, &reader->both) ||
                     watch_file(reader->both, reader->hasty, EPOLLIN, &reader->both)))
        failure = errno;
    if (!failure) { /* signals are for the threads of the program that loads this */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failure = pthread_create(&reader->thread, NULL, run, reader);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!failure) return reader;
    dispose(reader);
    errno = failure;
    return NULL;
}

/* End the thread, and free everything; streams that were not left are left. */
void reader_stop(struct reader *reader) {
    uint64_t one = 1;
    atomic_store(&reader->is_stopping, 1);
    (void)!write(reader->control, &one, sizeof one);
    pthread_join(reader->thread, NULL);
    dispose(reader);
}

/* Return the eventfd that can be read when a stream is ready. */
int reader_bell(struct reader *reader) { return reader->bell; }

const int64_t *reader_numbers(struct reader *reader) { return reader->numbers; }

const uint8_t *reader_bytes(struct reader *reader) { return reader->bytes; }

static struct stream *new_stream(struct reader *reader, int file) {
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    pthread_mutex_init(&stream->lock, NULL);
    stream->file = file;
    stream->near = INT64_MAX;
    pthread_mutex_lock(&reader->lock);
    stream->after = &reader->all;
    stream->before = reader->all.before;
    stream->before->after = reader->all.before = stream;
    pthread_mutex_unlock(&reader->lock);
    return stream;
}

/* Read a socket from now on; return NULL with errno if that cannot be. */
struct stream *reader_watch(struct reader *reader, int file) {
    struct stream *stream = new_stream(reader, file);
    if (!stream) return NULL;
    pthread_mutex_lock(&stream->lock);
    watch(reader, stream);
    int failure = stream->failure;
    pthread_mutex_unlock(&stream->lock);
    if (!failure) return stream;
    pthread_mutex_lock(&reader->lock);
    stream->before->after = stream->after;
    stream->after->before = stream->before;
    pthread_mutex_unlock(&reader->lock);
    free_stream(stream); /* no epoll has named it */
    errno = failure;
    return NULL;
}

/* Write a request to a socket at an instant, or at once if that has passed, and read the socket
 * from then on; return NULL with errno if there is no memory. */
struct stream *reader_send(struct reader *reader, int file, const uint8_t *request, int64_t length,
                           int64_t due_ns) {
    uint8_t *copy = malloc((size_t)length);
    struct stream *stream = copy ? new_stream(reader, file) : NULL;
    if (!stream) {
        free(copy);
        errno = ENOMEM;
        return NULL;
    }
    memcpy(copy, request, (size_t)length);
    stream->request = copy;
    stream->length = (size_t)length;
    pthread_mutex_lock(&reader->lock);
    stream->due_ns = due_ns;
    await_locked(reader, stream);
    pthread_mutex_unlock(&reader->lock);
    return stream;
}

/* Say after how many reads, beyond those that were taken, the end is near, so that a read is no
 * longer left to rest; and whether Python is told of each read. */
void reader_expect(struct reader *reader, struct stream *stream, int64_t reads, int is_eager) {
    pthread_mutex_lock(&stream->lock);
    stream->near = stream->handed + reads;
    stream->is_eager = is_eager;
    if (stream->handed) stream->is_unsure = 0; /* Python has seen the head */
    if (reads <= 0) hasten(reader, stream);
    int how = (is_eager && stream->count) || stream->failure ? FIRST : 0;
    pthread_mutex_unlock(&stream->lock);
    post(reader, stream, how);
}

/* Hand over what a stream holds, under its lock: copy it to where Python looks, and return how many
 * reads these are. The numbers are [offset, wall ns, monotonic ns] of a send stamp, whether this is
 * urgent, [when the write of a request began, when it was over, the bytes it has written since the
 * last time], and [wall ns, monotonic ns, end of the bytes] of each read. */
static int hand_over(struct reader *reader, struct stream *stream) {
    int count = stream->count;
    reader->numbers[0] = stream->sent_offset;
    reader->numbers[1] = stream->sent_wall_ns;
    reader->numbers[2] = stream->sent_now_ns;
    reader->numbers[3] = stream->is_urgent;
    reader->numbers[4] = stream->begun_ns;
    reader->numbers[5] = stream->left_ns;
    reader->numbers[6] = stream->newly_written;
    stream->begun_ns = stream->left_ns = stream->newly_written = 0;
    if (count) memcpy(reader->numbers + HEADER, stream->reads, count * sizeof *stream->reads);
    if (stream->held) memcpy(reader->bytes, stream->bytes, stream->held);
    stream->handed += count;
    stream->held = stream->count = stream->sent_wall_ns = stream->is_urgent = 0;
    if (stream->room > KEPT_BYTES) {
        free(stream->bytes);
        stream->bytes = NULL;
        stream->room = 0;
    }
    if (stream->places > KEPT_READS) {
        free(stream->reads);
        stream->reads = NULL;
        stream->places = 0;
    }
    return count;
}

/* Take what a stream holds, or what its socket has if it holds nothing. Return the number of reads,
 * or -errno where the connection has failed and nothing came before that. */
int reader_take(struct reader *reader, struct stream *stream) {
    pthread_mutex_lock(&stream->lock);
    if (!stream->count && stream->is_watched) {
        take_sent(stream);
        read_once(reader, stream, reader->own_scratch);
    }
    int found = hand_over(reader, stream);
    if (stream->is_paused) {
        stream->is_paused = 0;
        watch(reader, stream);
    }
    if (!found) {
        found = -stream->failure;
        stream->failure = 0;
    }
    int how = stream->failure ? FIRST : 0;
    pthread_mutex_unlock(&stream->lock);
    post(reader, stream, how);
    return found;
}

/* Read and write a socket no more, and hand over what was read and not taken. */
int reader_leave(struct reader *reader, struct stream *stream) {
    pthread_mutex_lock(&stream->lock);
    unwatch(reader, stream);
    forget_request(stream); /* what is not written by now never is */
    take_sent(stream);
    int found = hand_over(reader, stream);
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_lock(&reader->lock);
    unpost_locked(stream);
    undue_locked(stream);
    stream->is_gone = 1;
    stream->before->after = stream->after;
    stream->after->before = stream->before;
    stream->next_gone = reader->gone;
    reader->gone = stream;
    atomic_store(&reader->has_gone, 1);
    pthread_mutex_unlock(&reader->lock);
    return found;
}

/* Name a stream that is ready, and forget that it is; if none is, silence the bell and return NULL. */
struct stream *reader_next(struct reader *reader) {
    uint64_t times;
    pthread_mutex_lock(&reader->lock);
    struct stream *ring = &reader->first, *waits = &reader->ready, *next = NULL;
    int is_patient = reader->in_a_row < IN_A_ROW || waits->ready_after == waits;
    if (ring->ready_after == ring || !is_patient) ring = waits;
    reader->in_a_row = ring == waits ? 0 : reader->in_a_row + 1;
    if (ring->ready_after == ring) {
        (void)!read(reader->bell, &times, sizeof times);
    } else {
        next = ring->ready_after;
        unpost_locked(next);
    }
    pthread_mutex_unlock(&reader->lock);
    return next;
}
