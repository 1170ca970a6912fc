/* A clock that a test moves while the server runs.
 *
 * Preloaded into a server, it answers every question for the time of day with the kernel's answer
 * plus an offset. The offset is a signed 64-bit number of microseconds in the file that
 * SLUICEGATE_CLOCK_FILE names, which the test writes and every process maps. Clocks that measure
 * durations (CLOCK_MONOTONIC and its kin) are left alone: a step of the wall clock does not move
 * them either.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOS 1000000000LL

static const int64_t none;
static const volatile int64_t *offset_us = &none;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("SLUICEGATE_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) offset_us = page;
}

static int is_wall_clock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  /* The system call itself, since the library's function is the one that is replaced here. */
  long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed || !is_wall_clock(clock)) return failed ? -1 : 0;
  int64_t nanos = now->tv_sec * NANOS + now->tv_nsec + *offset_us * 1000;
  now->tv_sec = nanos / NANOS;
  now->tv_nsec = nanos % NANOS;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
