// The number of threads of a call: as many as there are cores that nothing else uses. Threads that share a loop wait for each
// other; one whose core another process has taken makes all of them wait for a time slice, at every step.

#include <stdint.h>

extern "C" {
extern int64_t fixed_limit;
int64_t fixed_limit = 0;  // a number of threads that holds whatever is free; 0: none
}

#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

constexpr int64_t INTERVAL = 100'000'000, BILLION = 1'000'000'000;  // nanoseconds between two samples
constexpr int64_t COST = 200;  // at most one part in so many of the time goes to samples: one may take milliseconds

static int64_t nanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * BILLION + t.tv_nsec;
}

// The beginning of a file, as text.
static bool read_text(const char* path, char* text, int64_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  int64_t all = 0;
  for (int64_t some; all < size - 1 && (some = read(file, text + all, size - 1 - all)) > 0;) all += some;
  close(file);
  text[all] = 0;
  return all > 0;
}

// Time in which the cores of this process were idle, in nanoseconds, all cores together; negative if unknown.
static int64_t idle_time() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores)) return -1;
  constexpr int64_t size = 1 << 17;
  char* const text = (char*)malloc(size);
  int64_t ticks = -1;
  if (text && read_text("/proc/stat", text, size))
    for (const char* line = strstr(text, "\ncpu"); line; line = strstr(line + 1, "\ncpu")) {
      char* at;
      const long core = strtol(line + 4, &at, 10);
      if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &cores)) continue;
      for (int field = 0; field < 3; ++field) strtoll(at, &at, 10);  // user, nice, system
      ticks = (ticks < 0 ? 0 : ticks) + strtoll(at, &at, 10);
      ticks += strtoll(at, &at, 10);  // waiting for a disk
    }
  free(text);
  return ticks < 0 ? -1 : ticks * (BILLION / sysconf(_SC_CLK_TCK));
}

// Cores that the control group of this process may use, rounded up.
static int64_t quota() {
  char text[64], *at;
  int64_t share = 0, period = 0;
  if (read_text("/sys/fs/cgroup/cpu.max", text, sizeof text)) {
    share = strtoll(text, &at, 10);  // 0 if it is "max"
    period = strtoll(at, &at, 10);
  } else if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text)) {
    share = strtoll(text, &at, 10);  // -1: no limit
    if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text)) period = strtoll(text, &at, 10);
  }
  return share > 0 && period > 0 ? (share + period - 1) / period : INT64_MAX;
}

struct Cores {
  int64_t wall, idle, own;     // at the last sample: the time, idle time of all cores, time of this process on cores
  int64_t next;                // when to sample again; INT64_MAX while a thread does
  int64_t free = INT64_MAX;    // cores not used by other processes
  const int64_t allowed = quota();

  Cores() { remember(nanoseconds(CLOCK_MONOTONIC)); }

  void remember(int64_t now) {
    const int64_t start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    wall = now, idle = idle_time(), own = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    const int64_t pause = (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start) * COST;
    __atomic_store_n(&next, now + (pause > INTERVAL ? pause : INTERVAL), __ATOMIC_RELEASE);
  }

  void sample(int64_t now) {
    const int64_t wall_before = wall, idle_before = idle, own_before = own;
    remember(now);
    const int64_t ours = own - own_before + idle - idle_before, time = wall - wall_before;
    const bool known = idle_before >= 0 && idle >= idle_before && own >= own_before;
    __atomic_store_n(&free, known ? (ours + time / 2) / time : INT64_MAX, __ATOMIC_RELAXED);
  }

  int64_t at_most() {
    const int64_t now = nanoseconds(CLOCK_MONOTONIC_COARSE);
    int64_t due = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
    if (now >= due && __atomic_compare_exchange_n(&next, &due, INT64_MAX, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      sample(nanoseconds(CLOCK_MONOTONIC));
    const int64_t most = __atomic_load_n(&free, __ATOMIC_RELAXED);
    return most < allowed ? most : allowed;
  }
};

static Cores cores;

extern "C" int64_t free_threads(int64_t wanted) {
  const int64_t most = fixed_limit ? fixed_limit : cores.at_most();
  return wanted < most ? wanted : most > 1 ? most : 1;
}
#else
extern "C" int64_t free_threads(int64_t wanted) { return wanted; }
#endif
