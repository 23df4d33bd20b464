"""A pool is listed completely, and each object once, while other objects are written and removed.

    CEPH_CONF=ceph.conf POOL=pool OBJECTS=1000000 python3 listing.py

Leaves OBJECTS empty objects in the pool. The interop test runs it with fewer.
"""
import os, rados, threading, time

OBJECTS, UNDER_WAY = int(os.environ['OBJECTS']), 256
cluster = rados.Rados(conffile=''); cluster.connect()
io = cluster.open_ioctx(os.environ['POOL'])
began = time.monotonic()

def name(n): return 'stays-%08d' % n

under_way = []
for n in range(OBJECTS):
    under_way.append(io.aio_write_full(name(n), b''))
    if len(under_way) == UNDER_WAY:
        for one in under_way: one.wait_for_complete()
        assert all(one.get_return_value() == 0 for one in under_way)
        under_way.clear()
for one in under_way: one.wait_for_complete()
print('%d objects made in %.1f s' % (OBJECTS, time.monotonic() - began), flush=True)

ending, errors, churned = threading.Event(), [], [0]

def churn():
    own = cluster.open_ioctx(os.environ['POOL'])
    try:
        while not ending.is_set():
            names = ['passes-%08d' % (churned[0] + n) for n in range(32)]
            for what in (lambda it: own.aio_write_full(it, b'x'), own.aio_remove):
                for one in [what(it) for it in names]:
                    one.wait_for_complete()
                    assert one.get_return_value() == 0, one.get_return_value()
            churned[0] += len(names)
    except Exception as error:
        errors.append(error)

thread = threading.Thread(target=churn); thread.start()
try:
    for turn in range(2):
        started, seen, passing = time.monotonic(), bytearray(OBJECTS), set()
        for found in io.list_objects():
            kind, number = found.key.split('-')
            if kind == 'stays':
                assert not seen[int(number)], '%s is listed twice' % found.key
                seen[int(number)] = 1
            else:
                assert found.key not in passing, '%s is listed twice' % found.key
                passing.add(found.key)
        missing = OBJECTS - sum(seen)
        assert not missing, '%d objects are not listed' % missing
        print('listed in %.1f s beside %d that came and went, %d of them seen'
              % (time.monotonic() - started, churned[0], len(passing)), flush=True)
finally:
    ending.set(); thread.join()
assert not errors, errors
assert churned[0] > 0
