#!/usr/bin/env python3
"""Unpacks the image of nginx and runs it as a container would: in its own root, by its own
libraries. The module counts, and denies what is over the limit.

    nginx_test.py IMAGE_FOLDER
"""

import os
import shutil
import signal
import socket
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from image_test import DEADLINE_S, check, entered, unpacked, until  # noqa: E402

MAX_BYTES = 25 << 20
# As many as examples/compose/policy.yaml admits in a minute.
RATE = 60
# Who is root in a user namespace cannot become another account.
NO_OTHER_USER = "user root; "


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def status(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def main():
    root, config = unpacked(sys.argv[1], MAX_BYTES)
    check(config["Cmd"][0] == "-g", f"its arguments are {config['Cmd']}")
    start = config["Entrypoint"] + ["-g", NO_OTHER_USER + config["Cmd"][1]]
    checked = entered(root, start + ["-t"])
    check(checked.wait(timeout=DEADLINE_S) == 0, "nginx refuses the image's own configuration")

    # The example's files are mounted over the image's own.
    os.makedirs(os.path.join(root, "etc/gabion"), exist_ok=True)
    shutil.copy("examples/compose/policy.yaml", os.path.join(root, "etc/gabion/policy.yaml"))
    port = free_port()
    with open("examples/compose/nginx.conf", encoding="utf-8") as f:
        text = f.read()
    check(text.count("listen 8080;") == 1, "the example's port is not where it was")
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    text = text.replace("0.0.0.0:7946", "127.0.0.1:0")
    with open(os.path.join(root, "etc/nginx/nginx.conf"), "w", encoding="utf-8") as f:
        f.write(text)
    nginx = entered(root, start)

    def first():
        check(nginx.poll() is None, f"nginx ended with {nginx.returncode}")
        return status(port)

    # Two windows at most, should a minute end meanwhile.
    answers = [until("nginx answers", first)] + [status(port) for _ in range(2 * RATE)]
    check(answers[0] == 200, f"the first request was answered with {answers[0]}")
    check(set(answers) == {200, 429}, f"answers were {sorted(set(answers), key=str)}")
    check(answers.count(429) >= 1 and answers.count(200) >= RATE,
          f"{answers.count(200)} of {len(answers)} requests were admitted")
    nginx.send_signal(signal.SIGQUIT)
    check(nginx.wait(timeout=DEADLINE_S) == 0, f"on SIGQUIT it ended with {nginx.returncode}")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
