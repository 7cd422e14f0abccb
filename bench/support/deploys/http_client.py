"""Asks one request after the other on kept connections, and prints counts: requests, lost ones, connections that the server has announced to close."""

import http.client
import sys
import threading
import time

port, seconds, threads, pause = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
ends = time.monotonic() + seconds
lock = threading.Lock()
counts = {"requests": 0, "lost": 0, "announced": 0}


def count(name):
    with lock:
        counts[name] += 1


def ask(connection):
    count("requests")
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise http.client.HTTPException(response.status)
    return response.will_close


def run():
    while time.monotonic() < ends:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while time.monotonic() < ends and not ask(connection):
                time.sleep(pause)
            count("announced")
        except (http.client.HTTPException, OSError) as error:
            count("lost")
            print(f"http.client: {error!r}", file=sys.stderr)
        connection.close()


clients = [threading.Thread(target=run) for _ in range(threads)]
for client in clients:
    client.start()
for client in clients:
    client.join()
print(" ".join(f"{name}={number}" for name, number in counts.items()))
