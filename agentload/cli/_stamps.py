"""Try whether the kernel stamps what is sent and received."""

import select
import socket
import struct
import time
from typing import Final

# asm-generic/socket.h and linux/net_tstamp.h: Python 3.11 names none of these.
SO_TIMESTAMPING: Final = 37
SOF_TIMESTAMPING_TX_SOFTWARE: Final = 1 << 1
SOF_TIMESTAMPING_RX_SOFTWARE: Final = 1 << 3
SOF_TIMESTAMPING_SOFTWARE: Final = 1 << 4
SOF_TIMESTAMPING_OPT_TSONLY: Final = 1 << 11

# Switching stamps on took 3 ms where it was measured (Linux 6.18); half a second of patience is enough to say no.
ATTEMPTS: Final = 25
ATTEMPT_S: Final = 0.01


def stamps_over_loopback() -> tuple[bool, bool]:
    """Return whether a byte over a loopback connection came back with a send stamp, and with a receive stamp."""
    flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY
    sent = received = False
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=1) as near:
        far, _ = server.accept()
        with far:
            far.settimeout(1)
            for end in (near, far):
                end.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
            # The first socket of a machine that asks for stamps switches them on, in the background: the first bytes may miss theirs.
            for _attempt in range(ATTEMPTS):
                near.sendall(b"x")
                received = _has_stamp(far.recvmsg(1, 256)[1]) or received
                sent = _has_send_stamp(near) or sent
                if sent and received:
                    break
                time.sleep(ATTEMPT_S)
    return sent, received


def _has_send_stamp(near: socket.socket) -> bool:
    # It waits in the error queue, which poll reports without being asked.
    poll = select.poll()
    poll.register(near, 0)
    return bool(poll.poll(ATTEMPT_S * 1000)) and _has_stamp(near.recvmsg(1, 256, socket.MSG_ERRQUEUE)[1])


def _has_stamp(ancillary: list[tuple[int, int, bytes]]) -> bool:
    return any(kind == SO_TIMESTAMPING and struct.unpack_from("qq", stamp) != (0, 0) for _level, kind, stamp in ancillary)
