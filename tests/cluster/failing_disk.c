/* A disk that fails or is slow, for one process: loaded with LD_PRELOAD.
 *
 * FAILING_DISK_BELOW    the directory whose files are affected
 * FAILING_DISK_CONTROL  a file that says how, and may change at any time: "<what> <errno> <milliseconds>"
 *
 *   write 5 0       writes fail with errno 5
 *   sync 5 0        syncs fail
 *   change 30 0     all that changes files or names fails
 *   sync 0 3000     syncs take 3 s
 *   none 0 0        all works
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, CHANGE = 4 };

static int read_control(char *what, int *error, int *ms) {
    const char *path = getenv("FAILING_DISK_CONTROL");
    char text[64] = {0};
    if (!path) return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    long count = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    return count > 0 && sscanf(text, "%15s %d %d", what, error, ms) == 3;
}

static int is_below(const char *path) {
    const char *below = getenv("FAILING_DISK_BELOW");
    return below && strncmp(path, below, strlen(below)) == 0;
}

static int fd_is_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* -1 with errno where the operation is to fail; it may have taken its time. */
static int strike(int kind) {
    char what[16];
    int error = 0, ms = 0;
    if (!read_control(what, &error, &ms)) return 0;
    int hit = (!strcmp(what, "write") && (kind & WRITE)) || (!strcmp(what, "sync") && (kind & SYNC)) ||
              (!strcmp(what, "change") && (kind & CHANGE));
    if (!hit) return 0;
    if (ms) {
        struct timespec rest = {ms / 1000, (ms % 1000) * 1000000L};
        nanosleep(&rest, NULL);
    }
    if (error) { errno = error; return -1; }
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define GUARD(fd, kind) do { if (fd_is_below(fd) && strike(kind)) return -1; } while (0)

ssize_t write(int fd, const void *data, size_t size) { GUARD(fd, WRITE | CHANGE); return REAL(write)(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { GUARD(fd, WRITE | CHANGE); return REAL(pwrite)(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { GUARD(fd, WRITE | CHANGE); return REAL(pwrite64)(fd, data, size, at); }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) { GUARD(fd, WRITE | CHANGE); return REAL(pwritev)(fd, v, n, at); }
ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) { GUARD(fd, WRITE | CHANGE); return REAL(pwritev64)(fd, v, n, at); }
int ftruncate(int fd, off_t length) { GUARD(fd, CHANGE); return REAL(ftruncate)(fd, length); }
int ftruncate64(int fd, off64_t length) { GUARD(fd, CHANGE); return REAL(ftruncate64)(fd, length); }
int fsync(int fd) { GUARD(fd, SYNC); return REAL(fsync)(fd); }
int fdatasync(int fd) { GUARD(fd, SYNC); return REAL(fdatasync)(fd); }
int mkdir(const char *path, mode_t mode) { if (is_below(path) && strike(CHANGE)) return -1; return REAL(mkdir)(path, mode); }
int unlink(const char *path) { if (is_below(path) && strike(CHANGE)) return -1; return REAL(unlink)(path); }
int rename(const char *old, const char *path) { if (is_below(path) && strike(CHANGE)) return -1; return REAL(rename)(old, path); }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && is_below(path) && strike(CHANGE)) return -1;
    return REAL(open64)(path, flags, mode);
}

/* The kernel's own syncs are not seen here: who asks for them is told that there are none. */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    va_list more;
    long a[6];
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_io_setup) { errno = ENOSYS; return -1; }
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
