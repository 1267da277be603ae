"""Holds the kernel's RTNL lock for a time: hold_rtnl.py SECONDS DEVICE FILE.

An ethtool request copies its argument from memory under the lock. The argument lies on a page that userfaultfd provides only when the time
is over. FILE.ready is created when everything is prepared; the request follows when FILE.go exists. FILE is created as soon as the lock
is held. The request is invalid, so the device stays as it is.
"""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys
import threading
import time

UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
SIOCETHTOOL, ETHTOOL_SCHANNELS = 0x8946, 0x3D
SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
PAGE = mmap.PAGESIZE

seconds, device, file = float(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
faults = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
if faults < 0:
    sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
fcntl.ioctl(faults, UFFDIO_API, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
memory = mmap.mmap(-1, 2 * PAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(faults, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", start + PAGE, PAGE, 1, 0)))
# The command is on the first page, which exists. Everything after it is on the second one.
memory[PAGE - 4 : PAGE] = struct.pack("I", ETHTOOL_SCHANNELS)


def release():
    """Provides the page when it has been missing for long enough."""
    os.read(faults, 32)
    open(file, "w", encoding="utf-8").close()
    time.sleep(seconds)
    fcntl.ioctl(faults, UFFDIO_ZEROPAGE, bytearray(struct.pack("QQQq", start + PAGE, PAGE, 0, 0)))


open(f"{file}.ready", "w", encoding="utf-8").close()
while not os.path.exists(f"{file}.go"):
    time.sleep(0.001)
threading.Thread(target=release, daemon=True).start()
request = struct.pack("16sP16x", device.encode(), start + PAGE - 4)
with socket.socket() as control:
    libc.ioctl(control.fileno(), SIOCETHTOOL, request)
