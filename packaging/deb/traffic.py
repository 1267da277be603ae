"""Numbered UDP packets between two hosts: `traffic.py echo ADDRESS`, or `traffic.py send ADDRESS [RATE]`.

Until SIGTERM, `send` sends RATE packets a second (500) in turn on four connections, and then prints how many it has
sent, how many answers are missing or came twice, and the longest time between two answers in milliseconds.
"""

import select
import signal
import socket
import sys
import time

PORT = 5000
CONNECTIONS = 4
RATE = 500
# The last answers may take as long.
LAST_S = 5.0


def echo(address):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, PORT))
    while True:
        packet, sender = server.recvfrom(64)
        server.sendto(packet, sender)


def send(address, rate=RATE):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    connections = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.connect((address, PORT))
    answers, longest, last = [], 0.0, time.monotonic()
    sent, due = 0, last

    def receive(until):
        nonlocal longest, last
        while (left := until - time.monotonic()) > 0:
            for connection in select.select(connections, [], [], left)[0]:
                answers.append(int(connection.recv(64)))
                now = time.monotonic()
                longest, last = max(longest, now - last), now

    while not stopped:
        connections[sent % CONNECTIONS].send(b"%d" % sent)
        sent += 1
        due = max(due + 1 / float(rate), time.monotonic() - 1)
        receive(due)
    receive(time.monotonic() + LAST_S)
    missing, twice = sent - len(set(answers)), len(answers) - len(set(answers))
    print(sent, missing, twice, round(longest * 1000), flush=True)


if __name__ == "__main__":
    {"echo": echo, "send": send}[sys.argv[1]](*sys.argv[2:])
