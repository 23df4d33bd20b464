"""A stock radosgw for a cluster that runs, and a client of it that signs requests as S3 wants them."""
import base64
import email.utils
import hashlib
import hmac
import http.client
import socket
import subprocess
import time
import urllib.parse

from ports import free_port

# The one user.
ACCESS, SECRET = "access", b"secret"
# Parts of a query that a signature of version 2 covers.
SIGNED = {"uploadId", "partNumber", "uploads", "delete"}
CAPS = ["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"]
# Until a gateway listens, or a bucket is no longer being resharded; in steps of 0.1 s.
PATIENCE_STEPS = 600


def run(*words):
    """What the command prints."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.decode()[-500:]}")
    return done.stdout.decode()


class Gateway:
    """One radosgw with a key, a port and a user of its own, on the cluster that `conf` and the administrator's keyring lead to. Its files
    are in `folder`."""

    def __init__(self, conf, admin_keyring, folder, *options):
        self.folder, self.process = folder, None
        keyring = f"{folder}/rgw.keyring"
        self.port = free_port()
        as_gateway = ["-c", conf, "-n", "client.rgw.t", "--keyring", keyring, "--log-file", f"{folder}/rgw.log", "--run-dir", folder]
        self.admin_command = ["radosgw-admin", *as_gateway]
        self.command = ["radosgw", "-f", *as_gateway, "--rgw-data", folder,
                        "--rgw-frontends", f"beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1", *options]
        run("ceph", "-c", conf, "--keyring", admin_keyring, "auth", "get-or-create", "client.rgw.t", *CAPS, "-o", keyring)
        try:
            self.start()
            self.admin("user", "create", "--uid", "u", "--display-name", "U", "--access-key", ACCESS, "--secret", SECRET.decode())
        except BaseException:
            self.stop()
            raise

    def admin(self, *words):
        """What `radosgw-admin` prints."""
        return run(*self.admin_command, *words)

    def start(self):
        """Starts it, again if it was killed, and waits until it listens."""
        with open(f"{self.folder}/rgw.out", "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(PATIENCE_STEPS):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"radosgw did not come up: see {self.folder}/rgw.out")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def client(self):
        return Client(self.port)


class Refused(Exception):
    """An answer with another status than the wanted one."""


class Client:
    """The user, over one connection, with signatures of version 2. What is cut off is an OSError or an HTTPException."""

    def __init__(self, port):
        self.port, self.wire = port, None

    def request(self, method, path, body=b"", want=200):
        """The answer, whose body is to be read."""
        place, _, query = path.partition("?")
        signed = sorted(part for part in query.split("&") if part.split("=")[0] in SIGNED)
        date = email.utils.formatdate(usegmt=True)
        text = "\n".join([method, "", "", date, place + ("?" + "&".join(signed) if signed else "")])
        key = base64.b64encode(hmac.new(SECRET, text.encode(), hashlib.sha1).digest()).decode()
        for _ in range(PATIENCE_STEPS):
            self.wire = self.wire or http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            try:
                self.wire.request(method, path, body, {"Date": date, "Authorization": f"AWS {ACCESS}:{key}"})
                self.reply = self.wire.getresponse()
            except Exception:
                self.wire = None
                raise
            if self.reply.status == want:
                return self.reply
            data = self.reply.read()
            if self.reply.status != 503:  # it is resharding, and says so
                raise Refused(f"{method} {path}: {self.reply.status} {data[:200]}")
            time.sleep(0.1)
        raise Refused(f"{method} {path}: 503 for a minute")

    def ask(self, *args, **more):
        """The whole body of the answer."""
        return self.request(*args, **more).read()


def all_of(tag, xml):
    """The texts of all elements of this name, without their escapes."""
    begin, end = f"<{tag}>", f"</{tag}>"
    return [urllib.parse.unquote(part.partition(end)[0]) for part in xml.decode().split(begin)[1:]]
