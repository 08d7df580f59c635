/* Moves the clock of the day while processes run, by the seconds in the file $MOVED_CLOCK, a number of eight bytes.
   Preload it with LD_PRELOAD. Clocks that measure spans do not move, so sleeps and timeouts last as long as ever.
   Ray's own code keeps the true clock, because it waits in the kernel until a time of the day. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none, *seconds = &none;

__attribute__((constructor)) static void map_file(void) {
    void *page = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, open(getenv("MOVED_CLOCK"), O_RDONLY), 0);
    if (page != MAP_FAILED) seconds = page;
}

static int read_clock(clockid_t id, struct timespec *now, void *caller) {
    int status = syscall(SYS_clock_gettime, id, now);
    Dl_info code = {0};
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return status;
    int is_rays = dladdr(caller, &code) && (strstr(code.dli_fname, "/ray/") || strstr(code.dli_fname, "libstdc++"));
    if (!is_rays) now->tv_sec += *seconds;
    return status;
}

int clock_gettime(clockid_t id, struct timespec *now) { return read_clock(id, now, __builtin_return_address(0)); }

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timespec now;
    read_clock(CLOCK_REALTIME, &now, __builtin_return_address(0));
    *result = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    read_clock(CLOCK_REALTIME, &now, __builtin_return_address(0));
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
