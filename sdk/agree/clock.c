/* A clock that a test moves: what a program asks the C library for the time of day, or since boot, is in the
 * file that SLUICEGATE_CLOCK names, as 8 bytes of microseconds since the epoch. Timers go on as ever.
 *
 *   cc -shared -fPIC -O2 -o clock.so clock.c && LD_PRELOAD=./clock.so SLUICEGATE_CLOCK=now redis-server
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

static volatile const uint64_t *now;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("SLUICEGATE_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *now, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) now = page;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int is_moved = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_BOOTTIME;
  if (!now || !is_moved) return (int)syscall(SYS_clock_gettime, clock, at);
  uint64_t us = *now;
  at->tv_sec = (time_t)(us / 1000000);
  at->tv_nsec = (long)(us % 1000000) * 1000;
  return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  at->tv_sec = precise.tv_sec;
  at->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (at) *at = precise.tv_sec;
  return precise.tv_sec;
}
