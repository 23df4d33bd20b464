"""Runs the stock `ceph` for scripts of tests, in children of an interpreter that has loaded it once: to start Python and load its modules is
two thirds of what a call of `ceph` costs.

Makes a folder with a program `ceph`, a link to the first argument (bin/ceph_call.rs), and a socket `server` on which that asks; writes the
folder's path to standard output, and removes it when standard input ends.

A call is four bytes, little endian, with the descriptors of standard input, output and errors; then as many bytes: the number of arguments,
the arguments, the working folder and the environment, each with a NUL behind it. The answer is a byte, the exit status.
"""
import io
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback

CEPH = "/usr/bin/ceph"
leave = os._exit


def end_with(connection):
    """Who asked is gone: so is what he asked for."""
    connection.recv(1)
    leave(255)


def status_of(end):
    """As the interpreter exits at the end of a program."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def run(code, connection, length):
    """Does what is asked, and does not return."""
    def end(status):
        connection.send(bytes([status & 0xff]))
        leave(status & 0xff)

    # After a failure `ceph` leaves by this.
    os._exit = end
    request = connection.recv(length, socket.MSG_WAITALL)
    if len(request) < length:
        raise EOFError("who asks has gone")
    count, *words = request.split(b"\0")[:-1]
    count = int(count)
    arguments, folder, variables = words[:count], words[count], words[count + 1:]
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(variable.split(b"=", 1) for variable in variables)
    sys.argv = [CEPH] + [os.fsdecode(argument) for argument in arguments]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0)
    sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0 if unbuffered else -1), write_through=unbuffered)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")
    threading.Thread(target=end_with, args=(connection,), daemon=True).start()
    try:
        exec(code, {"__name__": "__main__", "__file__": CEPH})
        status = 0
    except SystemExit as ended:
        status = status_of(ended)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    end(status)


def serve(code, listener):
    connection, _ = listener.accept()
    length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    if len(length) == 4 and len(descriptors) == 3 and os.fork() == 0:
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        try:
            run(code, connection, int.from_bytes(length, "little"))
        finally:
            leave(255)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.close()


def main():
    with open(CEPH) as program:
        code = compile(program.read(), CEPH, "exec")
    # Loads its modules, and does nothing else: it is not the main program.
    exec(code, {"__name__": "loaded", "__file__": CEPH})
    # Nobody waits for the children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    folder = tempfile.mkdtemp(prefix="nacre-ceph-")
    try:
        os.symlink(sys.argv[1], folder + "/ceph")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(folder + "/server")
        listener.listen(64)
        print(folder, flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            try:
                serve(code, listener)
            except OSError as error:
                # Who asked hears nothing, and says so; others are served.
                print(f"a call of ceph was not served: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(folder)


main()
