"""Try whether the kernel stamps what is sent and received, with the very functions that the transport stamps with."""

import socket
import time
from typing import Final

from agentload.live.stamps import ANCILLARY_BYTES, received_ns, sent_ns, stamp_received, stamp_sent

# Switching stamps on took 3 ms where it was measured (Linux 6.18); half a second of patience is enough to say no.
ATTEMPTS: Final = 25
ATTEMPT_S: Final = 0.02


def stamps_over_loopback() -> tuple[bool, bool]:
    """Return whether a byte over a loopback connection came back with a send stamp, and with a receive stamp."""
    sent = received = False
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=1) as near:
        far, _ = server.accept()
        with far:
            far.settimeout(1)
            near.setblocking(False)  # so that an empty error queue is no reason to wait
            if not (stamp_sent(near) and stamp_received(far)):
                return False, False
            # The first socket of a machine that asks for stamps switches them on, in the background: the first bytes may miss theirs.
            for _attempt in range(ATTEMPTS):
                near.sendall(b"x")
                received = received_ns(far.recvmsg(1, ANCILLARY_BYTES)[1]) is not None or received
                sent = bool(sent_ns(near)) or sent
                if sent and received:
                    break
                time.sleep(ATTEMPT_S)
    return sent, received
