// This library moves the wall clock of the program that preloads it, also while the program runs. The offset is an int64 in
// microseconds, in a file that this library maps. The file lies in the directory CHAOS_CLOCKS. It is "redis" for programs
// whose name begins with redis, and "sql" for all others. Times that a program reads include the offset, so the library
// subtracts the offset from times that a program waits for. Until the real function is known, the library makes the system
// call itself, because an allocator may ask for the time before any symbol can be looked up.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *dir = getenv("CHAOS_CLOCKS");
    char path[4096];
    if (!dir) return;
    snprintf(path, sizeof path, "%s/%s", dir, strncmp(program_invocation_short_name, "redis", 5) ? "sql" : "redis");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (p != MAP_FAILED) offset = p;
}

static void shift(struct timespec *t, int64_t us) {
    int64_t ns = t->tv_nsec + us % 1000000 * 1000;
    t->tv_sec += us / 1000000;
    if (ns < 0) {
        ns += 1000000000;
        t->tv_sec--;
    } else if (ns >= 1000000000) {
        ns -= 1000000000;
        t->tv_sec++;
    }
    t->tv_nsec = ns;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = real_clock_gettime ? real_clock_gettime(clock, t) : (int)syscall(SYS_clock_gettime, clock, t);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(t, *offset);
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (result) *result = t.tv_sec;
    return t.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    // InnoDB's condition variables in MySQL use the monotonic clock. Only libc knows the clock of a condition variable.
    // A time below thirty years is monotonic, because no machine has been up that long.
    if (until->tv_sec < 1000000000) return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, until);
    struct timespec t = *until;
    if (offset) shift(&t, -*offset);
    return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &t);
}
