#!/usr/bin/python3
"""Plays class calls on a real OSD and writes down what it answers: one .calls file per group of cases.

    record.py CEPH_CONF KEYRING POOL [GROUP...]     (the pool is made when it is not there; objects are removed after)

The groups of radosgw's classes need a pool with one PG.

Lines of a .calls file:
    object NAME missing|existing            a new object
    data HEX                                its data is replaced
    omap KEY HEX                            an omap value is set
    value KEY HEX                           an omap value is this
    keys N                                  the omap has so many keys
    bytes N OFFSET:HEX...                   the data is this, N bytes with zeros between the pieces
    xattr NAME HEX                          an attribute is this
    attr NAME HEX                           an attribute is set
    snap_seq N                              it is written under a snapshot context of this sequence
    CLASS METHOD IN = OUT                   a call that succeeds (- is nothing; ? in OUT is any half byte)
    CLASS METHOD IN ! ERRNO                 a call that fails
Stamps of now become 1700000000.0, and those as long behind it as a case asks for likewise; random uuids, random numbers and
versions become question marks.
"""
import os, re, struct, sys, time

import rados

u8 = lambda x: struct.pack('<B', x)
u32 = lambda x: struct.pack('<I', x)
u64 = lambda x: struct.pack('<Q', x & (2**64 - 1))
s32 = lambda x: struct.pack('<i', x)
s64 = lambda x: struct.pack('<q', x)
HEAD = 2**64 - 2
def S(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return u32(len(raw)) + raw
def env(version, compat, *parts):
    body = b''.join(parts)
    return u8(version) + u8(compat) + u32(len(body)) + body
def seq(*items): return u32(len(items)) + b''.join(items)
def utime(sec, nsec=0): return u32(sec) + u32(nsec)
def some(value): return u8(1) + value
NONE = u8(0)

UUID = re.compile(rb'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
NOW_SECONDS = 1_700_000_000

# Ids in the log of a bucket index, and keys by time of its garbage.
LOG_ID = re.compile(rb'[0-9]{11}\.([0-9]{4})\.[0-9]')
TIME_KEY = re.compile(rb'([0-9]{11})\.[0-9]{9}')
# How long behind now stamps may be, in seconds.
DELAYS = [0, 100_000, 200_000, 300_000]

# Random bytes that the OSD made.
SECRETS = []

def settled(sec):
    """The second that stands for one that was recorded; none for one that does not depend on the run."""
    return next((NOW_SECONDS + delay for delay in DELAYS if abs(sec - delay - time.time()) < 900), None)

def normal(out):
    """Hex of an output without what differs from run to run."""
    raw, masked = bytearray(out), set()
    for at in range(len(raw) - 7):
        sec, nsec = struct.unpack_from('<II', raw, at)
        if settled(sec) and nsec < 10**9:
            raw[at:at + 8] = utime(settled(sec))
    for found in TIME_KEY.finditer(bytes(raw)):
        if settled(int(found[1])):
            raw[found.start():found.end()] = f'{settled(int(found[1])):011}.{0:09}'.encode()
    for secret in SECRETS:
        for found in re.finditer(re.escape(secret), bytes(raw)):
            masked.update(range(found.start(), found.end()))
    for found in LOG_ID.finditer(bytes(raw)):
        masked.update(range(found.start(1), found.end(1)))
    for found in UUID.finditer(bytes(raw)):
        masked.update(range(found.start(), found.end()))
    return ''.join('??' if at in masked else f'{byte:02x}' for at, byte in enumerate(raw)) or '-'

class Recorder:
    def __init__(self, ioctx, folder):
        self.ioctx, self.folder, self.lines, self.name, self.made = ioctx, folder, [], None, 0

    def group(self, name):
        self.flush()
        self.group_name = name

    def flush(self):
        if self.lines:
            with open(os.path.join(self.folder, self.group_name + '.calls'), 'w') as out:
                out.write('\n'.join(self.lines) + '\n')
        self.lines = []

    def object(self, title, exists=False):
        self.drop()
        self.made += 1
        self.name = f'cls-record.{os.getpid()}.{self.made}'
        if exists:
            self.ioctx.write_full(self.name, b'')
        self.lines.append(f'object {title.replace(" ", "-")} {"existing" if exists else "missing"}')

    def drop(self):
        if self.name:
            try: self.ioctx.remove_object(self.name)
            except rados.ObjectNotFound: pass

    def call(self, cls, method, payload=b''):
        line = f'{cls} {method} {payload.hex() or "-"}'
        try:
            _, out = self.ioctx.execute(self.name, cls, method, payload)
            self.lines.append(f'{line} = {normal(out)}')
            return out
        except rados.Error as error:
            self.lines.append(f'{line} ! {abs(error.errno)}')
            return None

    def value(self, key):
        with rados.ReadOpCtx() as op:
            found, _ = self.ioctx.get_omap_vals_by_keys(op, (key,))
            try: self.ioctx.operate_read_op(op, self.name)
            except rados.ObjectNotFound: return
            values = dict(found)
        self.lines.append(f"value {key} {(values.get(key) or b'').hex() or '-'}")

    def omap_state(self):
        """All omap entries, whose keys must be text without blanks."""
        with rados.ReadOpCtx() as op:
            found, _ = self.ioctx.get_omap_vals(op, '', '', 1000)
            try:
                self.ioctx.operate_read_op(op, self.name)
                values = dict(found)
            except rados.ObjectNotFound:
                values = {}
        self.lines.append(f'keys {len(values)}')
        for key, value in values.items():
            key = bytes.fromhex(normal(key.encode()).replace('?', '3')).decode()
            self.lines.append(f'value {key} {normal(value)}')

    def bytes(self, random=()):
        """The data, without long runs of zeros and these ranges of random bytes."""
        try: out = normal(self.ioctx.read(self.name, 1 << 20)).replace('-', '')
        except rados.ObjectNotFound: out = ''
        for start, end in random:
            out = out[:2 * start] + '?' * len(out[2 * start:2 * end]) + out[2 * end:]
        pieces, start = [], None
        octets = [out[at:at + 2] for at in range(0, len(out), 2)]
        for at in range(len(octets) + 1):
            if at == len(octets) or octets[at:at + 16] == ['00'] * 16:
                if start is not None: pieces.append(f"{start}:{''.join(octets[start:at])}")
                start = None
            elif start is None and octets[at] != '00': start = at
        self.lines.append(' '.join([f'bytes {len(octets)}', *pieces]))

    def xattr(self, name, random=False):
        try: out = normal(self.ioctx.get_xattr(self.name, name))
        except (rados.ObjectNotFound, rados.NoData): out = '-'
        self.lines.append(f"xattr {name} {'?' * len(out) if random else out}")

    def secret(self, start, end):
        """These bytes of the data are random, wherever they are seen."""
        SECRETS.append(self.ioctx.read(self.name, end - start, start))

    def set_xattr(self, name, value):
        self.ioctx.set_xattr(self.name, name, value)
        self.lines.append(f"attr {name} {value.hex() or '-'}")

    def four_digits(self):
        """Raises the version of the pool's only PG to four digits."""
        try: self.ioctx.stat('raised')
        except rados.ObjectNotFound:
            for _ in range(1000): self.ioctx.write_full('raised', b'')

    def omap(self, values):
        with rados.WriteOpCtx() as op:
            self.ioctx.set_omap(op, tuple(values), tuple(values.values()))
            self.ioctx.operate_write_op(op, self.name)
        for key, value in values.items():
            self.lines.append(f"omap {key} {value.hex() or '-'}")

    def data(self, raw):
        self.ioctx.write_full(self.name, raw)
        self.lines.append(f'data {raw.hex() or "-"}')
    def snap_seq(self):
        self.seq = self.ioctx.create_self_managed_snap()
        self.ioctx.set_self_managed_snap_write([self.seq])
        self.ioctx.write_full(self.name, b'x')
        self.ioctx.set_self_managed_snap_write([])
        self.lines.append(f'snap_seq {self.seq}')

def main():
    conf, keyring, pool = sys.argv[1:4]
    cluster = rados.Rados(conffile=conf, conf={'keyring': keyring})
    cluster.connect()
    try: cluster.create_pool(pool)
    except rados.ObjectExists: pass
    folder = os.path.dirname(os.path.abspath(__file__))
    recorder = Recorder(cluster.open_ioctx(pool), folder)
    sys.path.insert(0, folder)
    import cases, rgw_cases
    wanted = sys.argv[4:]
    for name, play in sorted({**vars(cases), **vars(rgw_cases)}.items()):
        if name.startswith('play_') and (not wanted or name[5:] in wanted):
            recorder.group(name[5:].replace('_', '-'))
            play(recorder)
    recorder.flush()
    recorder.drop()

if __name__ == '__main__':
    main()
