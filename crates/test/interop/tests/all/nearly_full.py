# OSDs of many sizes are filled until the fullest has 90 %, with the balancer off; then it evens them, while all writes go on to be
# possible: no OSD ever becomes full.
import atexit, json, os, rados, subprocess, time
SIZES_MIB = {0: 1024, 1: 1024, 2: 1024, 3: 512, 4: 640, 5: 768, 6: 1536}
OBJECT = 1 << 20
FULL, NEARLY_FULL = 95, 90
daemons = []
cluster = rados.Rados(conffile=''); cluster.connect()

def run(*command, text=None):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, input=text, text=True).stdout
def ask(**command):
    code, out, text = cluster.mon_command(json.dumps(dict(command, format='json')), b'')
    assert code == 0, text
    return json.loads(out)
def osd_df():
    code, out, text = cluster.mgr_command(json.dumps(dict(prefix='osd df', format='json')), b'')
    assert code == 0, text
    return json.loads(out)['nodes']
def fills(): return {node['id']: node['utilization'] for node in osd_df()}
def flushed_fills():
    for osd in SIZES_MIB: run('ceph', 'tell', f'osd.{osd}', 'flush_pg_stats')
    return fills()
def evaluation(): return json.loads(run('ceph', 'balancer', 'eval', '--format', 'json'))
def is_clean():
    return {state['state_name'] for state in ask(prefix='status')['pgmap']['pgs_by_state']} == {'active+clean'}
def wait(what, is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)

def add(osd, mib):
    uuid, key = run('uuidgen').strip(), run('ceph-authtool', '--gen-print-key').strip()
    assert run('ceph', 'osd', 'new', uuid, '-i', '-', text=json.dumps({'cephx_secret': key})).strip() == str(osd)
    nacre, folder = os.environ['NACRE'], os.environ['DIR']
    run(nacre, 'osd', '--dir', folder, '--id', str(osd), '--mkfs', '--uuid', uuid, '--key', key, '--osd-size', f'{mib}M')
    log = open(f'{folder}/log/osd.{osd}.log', 'a')
    daemons.append(subprocess.Popen([nacre, 'osd', '--dir', folder, '--id', str(osd), '--listen', '127.0.0.1'],
                                    start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
# Also when the script fails.
@atexit.register
def end_daemons():
    for daemon in daemons: daemon.terminate()
    for daemon in daemons: assert daemon.wait() == 0, daemon.args
    daemons.clear()

for osd, mib in SIZES_MIB.items():
    if osd > 2: add(osd, mib)
wait('all are up', lambda: ask(prefix='osd stat')['num_up_osds'] == len(SIZES_MIB))
run('ceph', 'balancer', 'off'); run('ceph', 'config', 'set', 'mgr', 'mgr/balancer/sleep_interval', '1')
# One with small PGs that are even, and one with a few large ones that are not.
for pool, pgs in (('many', '128'), ('few', '16')):
    run('ceph', 'osd', 'pool', 'create', pool, pgs, pgs); run('ceph', 'osd', 'pool', 'set', pool, 'size', '2')
    run('ceph', 'osd', 'pool', 'application', 'enable', pool, 'rados')
wait('clean', is_clean)

# Until the fullest has 90 %: what all OSDs can still hold is written in steps, which become small.
pools, data, count = [cluster.open_ioctx('many'), cluster.open_ioctx('few')], os.urandom(OBJECT), 0
while True:
    filled = flushed_fills()
    fullest = max(filled, key=filled.get)
    if filled[fullest] >= NEARLY_FULL: break
    left_mib = (NEARLY_FULL - filled[fullest]) / 100 * SIZES_MIB[fullest]
    flying = [pools[(count + n) % 3 == 0].aio_write_full(f'o{count + n}', data) for n in range(max(2, int(left_mib)))]
    for write in flying:
        write.wait_for_complete(); assert write.get_return_value() == 0, filled
    count += len(flying)
before, unmoved, holds_mib = filled, evaluation(), {node['id']: node['kb'] / 1024 for node in osd_df()}
mean = lambda filled: sum(filled[osd] * mib for osd, mib in holds_mib.items()) / sum(holds_mib.values())
print(f'{count} objects: fullest {max(before.values()):.1f} %, emptiest {min(before.values()):.1f} %, mean {mean(before):.1f} %, {unmoved}')

run('ceph', 'balancer', 'on')
started, highest, calm_since, exceptions = time.monotonic(), 0, None, None
while calm_since is None or time.monotonic() - calm_since < 15:
    assert time.monotonic() - started < 400, ('never even', fills(), run('ceph', 'balancer', 'status'), run('ceph', '-s'))
    pools[0].write_full('beside', data)  # which a full OSD would not let through
    highest = max(highest, *fills().values())
    health = ask(prefix='health')['checks']
    assert highest < FULL and 'OSD_FULL' not in health, (highest, health)
    now = ask(prefix='osd dump')['pg_upmap_items']
    calm_since = (calm_since or time.monotonic()) if now == exceptions and is_clean() else None
    exceptions = now
    time.sleep(0.2)
after, found = flushed_fills(), evaluation()
fullest = max(after, key=after.get)
print(f'after {time.monotonic() - started:.0f} s and {len(exceptions)} exceptions: fullest {after[fullest]:.1f} %, '
      f'emptiest {min(after.values()):.1f} %, mean {mean(after):.1f} %, at most {highest:.1f} % meanwhile, {found}')
# At most 1.03 of the mean, or what is possible, or one PG.
most, pg_mib = mean(after) * max(1.03, found['fullest_to_mean_bound']), count * 2 / 3 / 128
assert after[fullest] <= max(most, mean(after) + 100 * pg_mib / holds_mib[fullest]), (after, most, pg_mib)
for osd in SIZES_MIB: print(f'osd.{osd} of {SIZES_MIB[osd]} MiB: {before[osd]:.1f} % before, {after[osd]:.1f} % after')
end_daemons()
