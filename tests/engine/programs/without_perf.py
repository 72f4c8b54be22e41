"""without_perf.py COMMAND...: runs a command in which perf_event_open() is refused, as containers refuse it."""

import ctypes
import os
import struct
import sys

PERF_EVENT_OPEN = 298  # x86-64
EPERM = 1

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000


class Program(ctypes.Structure):
    _fields_ = [('count', ctypes.c_ushort), ('filter', ctypes.c_char_p)]


def main() -> None:
    filters = b''.join(struct.pack('=HBBI', *step) for step in [
        (LOAD, 0, 0, 0),  # the number of the system call
        (IF_EQUAL, 0, 1, PERF_EVENT_OPEN),
        (RETURN, 0, 0, ERRNO | EPERM),
        (RETURN, 0, 0, ALLOW),
    ])
    libc = ctypes.CDLL(None, use_errno=True)
    if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(filters) // 8, filters)))):
        sys.exit(f'without_perf.py: {os.strerror(ctypes.get_errno())}')
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == '__main__':
    main()
