/* A disk that takes SLOW_DISK bytes a second, or nothing before there is a file of that name, for the files without a name of the program that
 * this is preloaded to (ld.so(8)). It stands in for a cgroup's io.max, which takes a block device and root's rights. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void take_time(int fd, size_t length) {
  const char *rate = getenv("SLOW_DISK");
  struct stat file;
  if (!rate || fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_nlink > 0) return;
  double seconds = *rate == '/' ? 0.005 : length / atof(rate);
  do {
    struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&pause, &pause)) {
    }
  } while (*rate == '/' && access(rate, F_OK));
}

ssize_t write(int fd, const void *bytes, size_t length) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  take_time(fd, length);
  return real(fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  static ssize_t (*real)(int, const void *, size_t, off64_t);
  if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
  take_time(fd, length);
  return real(fd, bytes, length, offset);
}
