"""A rank: holds a connection to TTP_PORT as MindIO's processor does, and asks torch's store when it is ordered to save."""

import os
import socket
import time

address = os.environ.get("TTP_ADDR", "127.0.0.1")
connection = socket.create_connection((address, int(os.environ["TTP_PORT"])))
print("rank %s of launcher %d connected" % (os.environ["RANK"], os.getppid()), flush=True)
while connection.recv(16) == b"save":
    from torch.distributed import TCPStore

    port = int(os.environ["MASTER_PORT"])
    TCPStore(os.environ["MASTER_ADDR"], port, is_master=False).set("saved", os.environ["RANK"])
    connection.sendall(b"saved")
connection.close()
while True:
    time.sleep(60)
