"""The cases that record.py plays. Payload layouts: docs of crates/core/cls; unusual orders of errors are on purpose."""
from record import *

def position(number, tag, entry): return env(1, 1, u64(number), u64(tag), u64(entry))
def positions(*items): return env(1, 1, seq(*items))

def play_journal(r):
    j = lambda method, payload=b'': r.call('journal', method, payload)
    r.object('nothing')
    j('get_order'); j('set_active_set', u64(1)); j('client_register', S('a') + S('')); j('client_list', S('') + u64(10))
    j('tag_create', u64(0) + u64(2**64 - 1) + S('')); j('client_commit', S('a') + positions()); j('guard_append', u64(1))
    j('client_unregister', S('a')); j('create', u8(1))
    r.object('empty', True)
    j('get_order'); j('get_pool_id'); j('client_list', S('') + u64(10)); j('guard_append', u64(0)); j('guard_append', u64(1))
    j('tag_list', u64(0) + u64(10) + S('a') + NONE)
    r.object('header')
    j('create', u8(24) + u8(4) + s64(-1)); j('create', u8(24) + u8(4) + s64(-1))
    for m in 'get_order get_splay_width get_pool_id get_minimum_set get_active_set get_next_tag_tid'.split(): j(m)
    j('set_active_set', u64(3)); j('set_active_set', u64(3)); j('set_active_set', u64(2)); j('set_minimum_set', u64(4))
    j('set_minimum_set', u64(2)); j('set_minimum_set', u64(1)); j('set_active_set', u64(1)); j('get_minimum_set'); j('get_active_set')
    j('client_register', S('') + S('first')); j('client_register', S('') + S('again')); j('get_client', S(''))
    j('get_client', S('b')); j('client_register', S('b') + S('second')); j('client_list', S('') + u64(10)); j('client_list', S('') + u64(1))
    j('client_list', S('b') + u64(10)); j('client_list', S('') + u64(0))
    j('client_update_data', S('x') + S('')); j('client_update_data', S('b') + S('new')); j('client_update_state', S('b') + u8(1)); j('get_client', S('b'))
    j('client_update_state', S('b') + u8(0)); j('client_update_state', S('x') + u8(0)); j('client_update_state', S('b'))
    j('tag_create', u64(1) + u64(2**64 - 1) + S('')); j('tag_create', u64(0) + u64(0) + S('')); j('tag_create', u64(0) + u64(2**64 - 1) + S('t0'))
    j('tag_create', u64(0) + u64(2**64 - 1) + S('t0'))
    j('tag_create', u64(1) + u64(0) + S('t1')); j('tag_create', u64(2) + u64(2**64 - 1) + S('t2')); j('tag_create', u64(3) + u64(1) + S('t3')); j('tag_create', u64(4) + u64(0) + S('t4'))
    j('get_next_tag_tid'); j('get_tag', u64(2)); j('get_tag', u64(9))
    for after, most, who, cls in [(0, 10, '', NONE), (1, 10, '', NONE), (0, 2, '', NONE), (0, 10, '', some(u64(1))), (0, 0, '', NONE), (0, 10, 'x', NONE)]:
        j('tag_list', u64(after) + u64(most) + S(who) + cls)
    j('client_commit', S('') + positions(*[position(n, 1, n) for n in range(5)])); j('client_commit', S('x') + positions())
    j('client_commit', S('') + positions(position(0, 3, 7), position(1, 3, 6))); j('get_client', S('')); j('tag_list', u64(0) + u64(10) + S('') + NONE)
    j('client_register', S('c') + S('')); j('get_client', S('c')); j('client_commit', S('b') + positions(position(2, 2, 1)))
    j('client_commit', S('c') + positions(position(2, 4, 1))); j('client_register', S('d') + S('')); j('get_client', S('d'))
    j('tag_list', u64(0) + u64(10) + S('b') + NONE); j('tag_list', u64(0) + u64(10) + S('c') + NONE)
    j('tag_create', u64(5) + u64(0) + S('t5')); j('tag_list', u64(0) + u64(10) + S('b') + NONE); j('get_tag', u64(0)); j('get_tag', u64(1))
    j('client_unregister', S('b')); j('get_tag', u64(1)); j('client_unregister', S('d')); j('get_tag', u64(0)); j('get_tag', u64(2)); j('get_tag', u64(3))
    j('client_unregister', S('x')); j('client_update_state', S('') + u8(1)); j('client_unregister', S('')); j('get_tag', u64(2)); j('client_list', S('') + u64(10))
    r.object('data object')
    j('append', u64(10) + S('abcd')); j('guard_append', u64(4)); j('guard_append', u64(5)); j('append', u64(5) + S('efgh')); j('append', u64(8) + S('x')); j('append', u64(8)); r.call('hello', 'replay')

def play_hello(r):
    h = lambda method, payload=b'': r.call('hello', method, payload)
    for exists in [False, True]:
        for method in 'say_hello replay record_hello write_return_data writes_dont_return_data write_too_much_return_data turn_it_to_11 bad_reader bad_writer'.split():
            r.object(method, exists)
            h(method); h('replay')
    r.object('long names', True)
    h('say_hello', b'a' * 100); h('say_hello', b'a' * 101); h('say_hello', b'you'); h('writes_dont_return_data', b'x'); h('turn_it_to_11', b'x')
    r.object('recorded')
    h('record_hello', b'a' * 101); h('record_hello', b'you'); h('turn_it_to_11'); h('replay'); h('nothing'); r.call('nothing', 'hello')

def play_numops(r):
    n = lambda method, key, value: r.call('numops', method, S(key) + S(value))
    r.object('numbers')
    for method, value in [('add', 'two'), ('add', '2'), ('add', '2.5'), ('mul', '-1.5'), ('mul', ' 4'), ('add', ''), ('add', '4 '), ('mul', '1e8'), ('mul', '1e8'), ('add', '0.1'), ('mul', '1e-30'), ('mul', 'inf')]:
        n(method, 'k', value)
        r.value('k')
    n('mul', 'other', '3'); r.value('other')
    r.call('numops', 'add', S('k'))
    r.omap({'bad': b'x1'}); n('add', 'bad', '1'); r.omap({'half': b'1 '}); n('add', 'half', '1'); r.omap({'empty': b''}); n('add', 'empty', '1'); r.value('empty')

def log_entry(section, name, stamp, data, *ident): return env(1 + len(ident), 1, S(section), S(name), stamp, S(data), *map(S, ident))
def play_log(r):
    l = lambda method, payload=b'': r.call('log', method, payload)
    add = lambda *entries, mono=1: l('add', env(2, 1, seq(*entries), u8(mono)))
    lst = lambda start, marker, to, most: l('list', env(1, 1, utime(start), S(marker), utime(to), s32(most)))
    trim = lambda start, to, a='', b='': l('trim', env(2, 1, utime(start), utime(to), S(a), S(b)))
    r.object('nothing'); lst(0, '', 0, 0); l('info', env(1, 1)); trim(0, 10)
    r.object('empty', True); lst(0, '', 0, 0); l('info', env(1, 1)); trim(0, 10); l('add'); l('info')
    r.object('entries')
    for sec in [5, 7, 9]:
        add(log_entry('s', f'n{sec}', utime(sec, 1500), 'd', f'1_{sec:010}.000001_a'))
        l('info', env(1, 1))
    add(log_entry('s', 'early', utime(6), 'd', '1_0000000006.000000_b')); l('info', env(1, 1)); lst(0, '', 0, 0)
    add(log_entry('s', 'early2', utime(8), 'd', '1_0000000008.000000_b'), mono=0); l('info', env(1, 1))
    lst(0, '', 0, 0); lst(0, '', 0, 2); lst(6, '', 0, 0); lst(6, '', 8, 0); lst(7, '', 7, 0); lst(5, '', 9, 0); lst(0, '', 7, 0); lst(0, '1_0000000007.000001_a', 0, 0)
    lst(9, '', 5, 0); lst(0, '1_0000000009.000001_a', 0, 5); lst(0, '', 0, -1); lst(0, '', 0, 5); lst(0, '', 0, 4)
    trim(0, 4); trim(0, 6); lst(0, '', 0, 0); trim(0, 0, '', '1_0000000007.000001_a'); lst(0, '', 0, 0); trim(0, 100); trim(0, 100); l('info', env(1, 1))
    r.object('old entry'); l('add', env(1, 1, seq(log_entry('s', 'n', utime(5), 'd', 'x')))); l('info', env(1, 1)); lst(0, '', 0, 0); trim(0, 0, '', 'z')

def play_timeindex(r):
    t = lambda method, payload=b'': r.call('timeindex', method, payload)
    entry = lambda sec, nsec, ext, value: env(1, 1, utime(sec, nsec), S(ext), S(value))
    lst = lambda start, marker, to, most: t('list', env(1, 1, utime(start), S(marker), utime(to), s32(most)))
    trim = lambda start, to, a='', b='': t('trim', env(1, 1, utime(start), utime(to), S(a), S(b)))
    r.object('nothing'); lst(0, '', 0, 10); trim(0, 10)
    r.object('empty', True); lst(0, '', 0, 10); trim(0, 10); t('add')
    r.object('entries')
    t('add', env(1, 1, seq(entry(5, 1500, 'a', 'va'), entry(5, 0, 'b c', 'vb'), entry(7, 999999999, 'c', ''), entry(9, 5000, 'd', 'vd'))))
    lst(0, '', 0, 10); lst(0, '', 100, 10); lst(0, '', 100, 0); lst(0, '', 100, 2); lst(5, '', 7, 10); lst(6, '', 5, 10); lst(0, '1_0000000005.000001_a', 100, 10); lst(0, '', 100, 4); lst(0, '', 100, -1)
    trim(0, 4); trim(0, 5); lst(0, '', 100, 10); trim(0, 0, '', '1_0000000005.000001_a'); lst(0, '', 100, 10); trim(0, 100); trim(0, 100); lst(0, '', 100, 10)

def hobj(name, pool=1, hash=0x12345678, ns=''):
    return env(4, 3, S(''), S(name), u64(HEAD), u32(hash), u8(0), S(ns), s64(pool))
def play_cas(r):
    c = lambda method, payload=b'': r.call('cas', method, payload)
    create = lambda source, data, flags=0: c('chunk_create_or_get_ref', env(1, 1, source, u64(flags), S(data)))
    get = lambda source: c('chunk_get_ref', env(1, 1, source))
    put = lambda source: c('chunk_put_ref', env(1, 1, source))
    r.object('nothing'); get(hobj('a')); put(hobj('a')); c('references_chunk', S('x')); c('chunk_get_ref')
    r.object('bare', True); put(hobj('a')); get(hobj('a')); put(hobj('b')); put(hobj('a')); r.call('hello', 'replay'); c('references_chunk', S('x')); c('references_chunk')
    r.object('chunk'); create(hobj('a'), 'data'); r.call('hello', 'replay'); create(hobj('b'), 'other'); create(hobj('b'), 'other', 1); create(hobj('b'), 'data', 1)
    r.call('hello', 'replay'); get(hobj('a')); put(hobj('a', 2)); put(hobj('a')); put(hobj('a')); put(hobj('a')); put(hobj('b')); put(hobj('b')); r.call('hello', 'replay'); put(hobj('b'))
    r.object('no manifest', True); c('references_chunk', S('x')); c('references_chunk')
    r.object('many'); create(hobj('a'), 'data')
    for n in range(60): get(hobj(f'source{n}', hash=n * 0x01000193))
    put(hobj('never', hash=7)); put(hobj('never', hash=0x01000193)); put(hobj('other', pool=9)); put(hobj('source59', hash=59 * 0x01000193))

def bucket(name, marker='m', ident='i'): return env(7, 3, S(name), S(''), S(marker), S(ident), S(''), S(''))
def bucket_entry(name, size, count, synced, rounded=None, made=5, marker='m'): return env(9, 5, S(''), u64(size), u32(NOW_SECONDS), u64(count), bucket(name, marker), u64(size if rounded is None else rounded), u8(synced), utime(NOW_SECONDS, made))
def play_user(r):
    u = lambda method, payload=b'': r.call('user', method, payload)
    put = lambda add, stamp, *entries: u('set_buckets_info', env(1, 1, seq(*entries), u8(add), utime(stamp)))
    header = lambda: u('get_header', env(1, 1))
    lst = lambda marker, end, most: u('list_buckets', env(2, 1, S(marker), s32(most), S(end)))
    stats = lambda a, b, c: env(1, 1, u64(a), u64(b), u64(c))
    r.object('nothing'); header(); lst('', '', 10); u('remove_bucket', env(1, 1, bucket('x'))); u('complete_stats_sync', env(1, 1, utime(5))); header()
    r.object('nothing2'); u('reset_user_stats', env(1, 1, utime(5))); header()
    r.object('nothing3'); u('reset_user_stats2', env(1, 1, utime(5), S(''), stats(0, 0, 0))); header()
    r.object('not added'); put(0, 5, bucket_entry('a', 10, 1, 0)); header(); lst('', '', 10)
    r.object('buckets')
    put(1, 5, bucket_entry('b', 10, 1, 0, 4096)); header(); put(1, 4, bucket_entry('a', 20, 2, 1), bucket_entry('c', 30, 3, 0)); header(); lst('', '', 10)
    put(0, 9, bucket_entry('b', 15, 2, 0), bucket_entry('zz', 1, 1, 0)); header(); lst('', '', 10); put(1, 10, bucket_entry('b', 99, 9, 0, made=77, marker='again')); header(); lst('', '', 10); put(0, 11, bucket_entry('b', 16, 2, 1, made=99, marker='third')); header(); lst('', '', 1)
    lst('', '', 2); lst('b', '', 10); lst('', 'c', 10); lst('', '', 0); lst('', '', 3); lst('x', '', 3); lst('', '', -1)
    put(1, 9, bucket_entry('', 15, 2, 0)); u('complete_stats_sync', env(1, 1, utime(50))); header(); u('complete_stats_sync', env(1, 1, utime(40))); header()
    u('remove_bucket', env(1, 1, bucket('nothing'))); u('remove_bucket', env(1, 1, bucket('b'))); header(); lst('', '', 10)
    u('reset_user_stats', env(1, 1, utime(77))); header(); u('reset_user_stats2', env(1, 1, utime(88), S(''), stats(0, 0, 0))); header(); u('reset_user_stats2', env(1, 1, utime(90), S('a'), stats(0, 0, 0))); header()
    u('set_buckets_info'); u('list_buckets'); u('get_header'); u('remove_bucket')
    r.object('new placement'); put(1, 5, env(9, 5, S(''), u64(7), u32(NOW_SECONDS), u64(1), env(9, 8, S('n'), S('m'), S('i'), S('place')), u64(8), u8(0), utime(NOW_SECONDS))); lst('', '', 5)
    r.object('old entry'); put(1, 5, env(5, 5, S('name'), u64(7), u32(NOW_SECONDS), u64(1), bucket('o'), u64(8))); lst('', '', 5)

ALL = 0xfff
def image(size=1 << 24, order=22, features=0x3d, prefix='rbd_data.1', *pool): return u64(size) + u8(order) + u64(features) + S(prefix) + b''.join(map(s64, pool))
USER = env(1, 1, u32(0))
def group_ns(pool, group, snap): return env(1, 1, u32(1), s64(pool), S(group), S(snap))
def trash_ns(name, kind): return env(1, 1, u32(2), S(name), u32(kind))
def mirror_ns(state, peers, complete=0, copied=0): return env(1, 1, u32(3), u8(state), u8(complete), seq(*map(S, peers)), S('primary'), u64(7), u64(copied), seq())
def parent(pool=1, image='p', snap=4, ns=''): return env(1, 1, s64(pool), S(ns), S(image), u64(snap))
def child(pool=2, image='c', ns=''): return env(2, 1, s64(pool), S(image), S(ns))

def play_rbd_names(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    r.object('no id'); b('get_id'); b('set_id', S('')); b('set_id', S('a1'))
    r.object('id', True); b('get_id'); b('set_id'); b('set_id', S('')); b('set_id', S('a-b')); b('set_id', S('a1')); b('set_id', S('a-1')); b('set_id', S('a2')); b('get_id')
    r.object('damaged id', True); r.data(b'\xff\xff\xff\x7f'); b('get_id')
    r.object('no directory'); b('dir_get_id', S('a')); b('dir_remove_image', S('a') + S('1')); b('dir_rename_image', S('a') + S('b') + S('1')); b('dir_list', S('') + u64(9)); b('dir_state_assert', u8(0))
    b('dir_state_set', u8(1)); b('dir_state_set', u8(2)); b('dir_add_image', S('') + S('1')); b('dir_add_image', S('a')); b('dir_state_assert', u8(0)); b('dir_state_set', u8(0)); b('dir_state_assert', u8(0)); b('dir_state_assert', u8(1))
    r.object('directory'); b('dir_add_image', S('a') + S('1')); b('dir_add_image', S('a') + S('2')); b('dir_add_image', S('b') + S('1')); b('dir_add_image', S('a') + S('1')); b('dir_add_image', S('b') + S('x_y')); b('dir_add_image', S('b') + S('2'))
    b('dir_state_assert', u8(0)); b('dir_state_set', u8(1)); b('dir_get_id', S('a')); b('dir_get_id', S('x')); b('dir_get_name', S('2')); b('dir_get_name', S('9')); b('dir_list', S('') + u64(9)); b('dir_list', S('') + u64(1)); b('dir_list', S('a') + u64(9)); b('dir_list', S('') + u64(0)); b('dir_list', S(''))
    b('dir_rename_image', S('a') + S('b') + S('1')); b('dir_rename_image', S('a') + S('c') + S('2')); b('dir_rename_image', S('x') + S('b') + S('1')); b('dir_rename_image', S('a') + S('c') + S('9')); b('dir_rename_image', S('a') + S('') + S('1')); b('dir_rename_image', S('a') + S('a') + S('1')); b('dir_rename_image', S('a') + S('c') + S('1'))
    b('dir_remove_image', S('c') + S('2')); b('dir_remove_image', S('c') + S('9')); b('dir_remove_image', S('x') + S('1')); b('dir_remove_image', S('c') + S('1')); b('dir_remove_image', S('b') + S('2')); b('dir_state_set', u8(1)); b('dir_state_assert', u8(0)); b('dir_state_assert', u8(1)); b('dir_add_image', S('z') + S('1')); b('dir_state_set', u8(0))
    r.object('no metadata'); b('metadata_list', S('') + u64(0)); b('metadata_get', S('k')); b('metadata_remove', S('k')); b('metadata_set', seq())
    r.object('metadata'); b('metadata_set', seq(S('k') + S('v'), S('l') + S(''))); b('metadata_get', S('k')); b('metadata_get', S('l')); b('metadata_get', S('m')); b('metadata_list', S('') + u64(0)); b('metadata_list', S('k') + u64(5)); b('metadata_list', S('') + u64(1)); b('metadata_remove', S('m')); b('metadata_remove', S('k')); b('metadata_list', S('') + u64(9)); b('metadata_set', u32(1)); b('metadata_list', S(''))
    b('metadata_set', seq(*[S(f'k{n:03}') + S('') for n in range(70)])); b('metadata_list', S('k002') + u64(0)); b('metadata_list', S('') + u64(66))
    r.object('no namespaces'); b('namespace_list', S('') + u64(9)); b('namespace_remove', S('n')); b('namespace_add')
    r.object('namespaces'); b('namespace_add', S('n')); b('namespace_add', S('n')); b('namespace_add', S('')); b('namespace_add', S('m')); b('namespace_list', S('') + u64(9)); b('namespace_list', S('m') + u64(9)); b('namespace_list', S('') + u64(1)); b('namespace_list', S('') + u64(0)); b('namespace_remove', S('x')); b('namespace_remove', S('n')); b('namespace_list', S('') + u64(9))

READS = 'get_size get_features get_flags get_snapcontext get_object_prefix get_data_pool op_features_get get_stripe_unit_count get_create_timestamp get_access_timestamp get_modify_timestamp snapshot_get_limit parent_get parent_overlap_get get_parent image_group_get migration_get get_all_features'.split()
def read_all(r, snap=HEAD):
    for method in READS:
        r.call('rbd', method, u64(snap) if method in ('get_size', 'get_features', 'get_flags', 'parent_overlap_get', 'get_parent') else b'')
def play_rbd_header(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    r.object('no header'); read_all(r)
    for method, payload in [('set_size', u64(1)), ('set_features', u64(8) + u64(8)), ('set_flags', u64(1) + u64(1)), ('set_stripe_unit_count', u64(1) + u64(1)), ('set_access_timestamp', b''), ('set_modify_timestamp', b''), ('op_features_set', u64(1) + u64(1)), ('set_stripe_unit_count', u64(0) + u64(1))]:
        r.object(f'no header {method}'); b(method, payload)
    r.object('empty header', True); read_all(r); read_all(r, 4); b('set_size', u64(1)); b('op_features_set', u64(1) + u64(1)); b('set_stripe_unit_count', u64(1) + u64(1)); b('set_modify_timestamp'); b('get_modify_timestamp'); b('set_flags', u64(1) + u64(3)); b('set_features', u64(8) + u64(8)); read_all(r)
    for payload in [image(), image(order=26), image(order=70), image(features=0x1000), image(prefix=''), image(features=0x100), image(features=0x200), image(features=0x81), image(1, 22, 0x81, 'x', -1), image(1, 22, 0x81, 'x', 5), image(1, 22, 1, 'x', 5), image(1, 22, 1, 'x', -1), image(1, 22, 0x81, 'x', -2), b'', image(features=0xe00)]:
        r.object('create'); b('create', payload); read_all(r); b('create', payload)
    r.object('header'); b('create', image(features=0x3f)); b('get_features', u64(HEAD) + u8(1)); b('get_features', u64(4) + u8(1)); b('get_features')
    b('get_size', u64(4)); b('get_flags', u64(4)); b('set_size', u64(5)); b('get_size', u64(HEAD)); b('set_size')
    b('set_flags', u64(1) + u64(3)); b('set_flags', u64(2) + u64(2) + u64(HEAD)); b('get_flags', u64(HEAD)); b('set_flags', u64(0) + u64(1) + u64(4)); b('set_flags', u64(0) + u64(1)); b('get_flags', u64(HEAD))
    for bit in range(16):
        b('set_features', u64(1 << bit) + u64(1 << bit)); b('get_features', u64(HEAD)); b('set_features', u64(0) + u64(1 << bit)); b('get_features', u64(HEAD))
    b('set_features', u64(0x1008) + u64(0x1008)); b('set_features', u64(8))
    for value, mask in [(1, 1), (4, 5), (0, 4), (0, 1), (0, 2), (16, 16), (2, 3), (15, 15), (0, 31), (0, 15)]:
        b('op_features_set', u64(value) + u64(mask)); b('op_features_get'); b('get_features', u64(HEAD))
    b('get_stripe_unit_count'); b('set_stripe_unit_count', u64(0) + u64(4)); b('set_stripe_unit_count', u64(65536) + u64(0)); b('set_stripe_unit_count', u64(65537) + u64(4)); b('set_stripe_unit_count', u64(1 << 23) + u64(4)); b('set_stripe_unit_count', u64(65536) + u64(4)); b('get_stripe_unit_count')
    r.object('no striping'); b('create', image()); b('set_stripe_unit_count', u64(65536) + u64(4)); b('get_stripe_unit_count'); b('set_access_timestamp'); b('get_access_timestamp')

def play_rbd_snapshots(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    snap = lambda name, ident, ns=USER: b('snapshot_add', S(name) + u64(ident) + ns)
    r.object('nothing'); snap('a', 4); b('snapshot_get', u64(4)); b('snapshot_remove', u64(4)); b('snapshot_rename', u64(4) + S('b')); b('snapshot_trash_add', u64(4)); b('set_protection_status', u64(4) + u8(2)); b('get_protection_status', u64(4)); b('snapshot_set_limit', u64(2**64 - 1)); b('snapshot_set_limit', u64(3)); b('snapshot_get_limit')
    r.object('empty', True); snap('a', 4); b('snapshot_get', u64(4)); b('snapshot_get', u64(HEAD)); b('snapshot_remove', u64(4)); b('set_protection_status', u64(4) + u8(2)); b('get_protection_status', u64(4)); b('get_protection_status', u64(HEAD)); b('snapshot_set_limit', u64(2**64 - 1)); b('snapshot_set_limit', u64(0)); b('snapshot_get_limit')
    r.object('header'); b('create', image()); snap('a', 4); snap('a', 5); snap('b', 4); snap('b', 3); snap('b', 2**64 - 1); snap('b', 2**63); snap('b', 7); b('snapshot_add', S('c') + u64(8)); b('snapshot_add', S('c'))
    snap('d', 9, env(1, 1, u32(9))); snap('a', 10, group_ns(1, 'g', 's')); snap('a', 11, group_ns(1, 'g', 's')); snap('a', 11, group_ns(1, 'g', 't')); snap('a', 12, trash_ns('x', 0)); b('op_features_get'); b('get_features', u64(HEAD)); snap('m', 13, mirror_ns(1, ['u'])); snap('m', 14, mirror_ns(1, ['u', 'v']))
    b('get_snapcontext')
    for ident in (4, 7, 8, 10, 11, 12, 13, 14, 99, HEAD):
        b('snapshot_get', u64(ident)); b('get_snapshot_name', u64(ident)); b('get_snapshot_timestamp', u64(ident)); b('get_protection_status', u64(ident))
    b('set_size', u64(77)); b('set_flags', u64(3) + u64(3)); snap('later', 20); b('get_size', u64(20)); b('get_flags', u64(20)); b('get_size', u64(4)); b('get_flags', u64(4)); b('set_flags', u64(1) + u64(1) + u64(4)); b('get_flags', u64(4)); b('get_flags', u64(HEAD))
    b('snapshot_rename', u64(99) + S('a')); b('snapshot_rename', u64(99) + S('zz')); b('snapshot_rename', u64(4) + S('b')); b('snapshot_rename', u64(4) + S('a')); b('snapshot_rename', u64(10) + S('qq')); b('snapshot_rename', u64(4) + S('e')); b('snapshot_get', u64(4)); b('snapshot_rename', u64(4))
    b('set_protection_status', u64(99) + u8(2)); b('set_protection_status', u64(HEAD) + u8(2)); b('set_protection_status', u64(4) + u8(3)); b('set_protection_status', u64(4) + u8(2)); b('get_protection_status', u64(4)); b('snapshot_remove', u64(4)); b('snapshot_trash_add', u64(4)); b('set_protection_status', u64(4) + u8(1)); b('snapshot_remove', u64(4)); b('set_protection_status', u64(4) + u8(0))
    b('snapshot_trash_add', u64(99)); b('snapshot_trash_add', u64(12)); b('snapshot_trash_add', u64(4)); b('snapshot_get', u64(4)); b('snapshot_trash_add', u64(4)); b('snapshot_trash_add', u64(10)); b('snapshot_get', u64(10)); b('snapshot_rename', u64(4) + S('f'))
    b('op_features_get'); b('snapshot_remove', u64(12)); b('op_features_get'); b('snapshot_remove', u64(4)); b('snapshot_remove', u64(10)); b('op_features_get'); b('get_features', u64(HEAD)); b('snapshot_remove', u64(4)); b('get_snapcontext'); b('snapshot_remove'); b('snapshot_trash_add')
    b('snapshot_set_limit', u64(3)); b('snapshot_set_limit', u64(2)); b('snapshot_set_limit', u64(6)); b('snapshot_get_limit'); snap('limit', 30); snap('limit2', 31); snap('limit', 32); b('snapshot_set_limit', u64(2**64 - 1)); b('snapshot_get_limit'); snap('limit2', 31); b('snapshot_set_limit')
    r.object('limits'); b('create', image()); b('snapshot_set_limit', u64(0)); snap('a', 1); snap('b', 2); snap('a', 3); b('snapshot_set_limit', u64(1)); snap('b', 2); b('snapshot_set_limit', u64(2)); snap('a', 2); snap('b', 1); snap('b', 2); snap('a', 3); snap('c', 3); b('get_snapcontext')
    r.object('no layering'); b('create', image(features=0x4)); snap('a', 4); b('set_protection_status', u64(4) + u8(2)); b('get_protection_status', u64(4)); b('set_protection_status', u64(HEAD) + u8(9)); read_all(r, 4)

def play_rbd_parents(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    snap = lambda name, ident, ns=USER: b('snapshot_add', S(name) + u64(ident) + ns)
    def show(*snaps):
        b('parent_get'); b('op_features_get'); b('get_features', u64(HEAD))
        for s in (HEAD, *snaps): b('parent_overlap_get', u64(s)); b('get_parent', u64(s))
    attach = lambda spec, overlap, *again: b('parent_attach', spec + u64(overlap) + b''.join(map(u8, again)))
    r.object('nothing'); attach(parent(), 5, 0); b('parent_detach'); b('remove_parent'); b('set_parent', s64(1) + S('p') + u64(4) + u64(5)); b('children_list', u64(4)); b('child_attach', u64(4) + child()); b('child_detach', u64(4) + child()); show(4)
    r.object('empty', True); attach(parent(), 5, 0); b('parent_detach'); b('remove_parent'); b('set_parent', s64(1) + S('p') + u64(4) + u64(5)); b('children_list', u64(4)); b('child_attach', u64(4) + child()); b('child_detach', u64(4) + child()); show(4)
    r.object('no layering'); b('create', image(features=4)); attach(parent(), 5, 0); b('parent_detach'); b('remove_parent'); show(4); snap('a', 4); show(4)
    for features in (0x3d, 0x1d):
        r.object(f'clone {features:x}'); b('create', image(features=features)); show(4); b('parent_detach'); b('remove_parent')
        for spec, overlap in [(parent(-1), 5), (parent(image=''), 5), (parent(snap=HEAD), 5), (parent(), 0), (parent(snap=HEAD), 0)]: attach(spec, overlap, 0)
        attach(parent(), 1 << 30); show(4); attach(parent(), 1 << 30, 0); attach(parent(), 5, 0); attach(parent(2), 1 << 24, 1); attach(parent(3, ns='n'), 1 << 23, 1); show(4)
        b('op_features_set', u64(2) + u64(2)); snap('a', 4); b('set_size', u64(1 << 20)); snap('b', 5); b('set_size', u64(1 << 24)); show(4, 5, 9)
        b('remove_parent'); b('parent_detach'); show(4, 5); b('parent_detach'); attach(parent(3, ns='n'), 100, 0); attach(parent(4), 100, 0); show(4, 5); b('parent_detach'); snap('c', 6); show(6); b('snapshot_remove', u64(4)); show(5); b('snapshot_remove', u64(5)); show(); b('snapshot_remove', u64(6)); show()
        attach(parent(), 100, 1); show(); snap('d', 7); b('snapshot_remove', u64(7)); show(); b('remove_parent'); show(); b('set_parent', s64(1) + S('p') + u64(4) + u64(5)); show(); b('set_parent', s64(1) + S('p') + u64(4) + u64(5)); b('set_parent', s64(1)); b('parent_attach')
    r.object('children'); b('create', image()); snap('a', 4); snap('b', 5); b('children_list', u64(4)); b('children_list', u64(9)); b('child_detach', u64(4) + child()); b('child_detach', u64(9) + child()); b('child_attach', u64(9) + child()); b('child_attach', u64(4) + child()); b('child_attach', u64(4) + child()); b('child_attach', u64(4) + child(1, 'z', 'ns')); b('child_attach', u64(4) + child(2, 'a')); b('child_attach', u64(5) + child()); b('children_list', u64(4)); b('children_list', u64(5)); b('snapshot_get', u64(4)); b('snapshot_remove', u64(4)); b('op_features_get'); b('get_features', u64(HEAD))
    b('snapshot_trash_add', u64(4)); b('child_attach', u64(4) + child(9)); b('snapshot_get', u64(4)); b('child_detach', u64(4) + child(9)); b('child_detach', u64(4) + child()); b('child_detach', u64(4) + child()); b('child_detach', u64(5) + child()); b('op_features_get'); b('child_detach', u64(4) + child(1, 'z', 'ns')); b('child_detach', u64(4) + child(2, 'a')); b('children_list', u64(4)); b('op_features_get'); b('get_features', u64(HEAD)); b('child_attach', u64(4))
    key = lambda image='p', pool=1, snap=4: s64(pool) + S(image) + u64(snap)
    r.object('no v1 children'); b('get_children', key()); b('remove_child', key() + S('c'))
    r.object('v1 children'); b('add_child', key() + S('c')); b('add_child', key() + S('c')); b('add_child', key() + S('d')); b('add_child', key('q') + S('d')); b('get_children', key()); b('get_children', key('x')); b('remove_child', key() + S('x')); b('remove_child', key('x') + S('c')); b('remove_child', key() + S('c')); b('get_children', key()); b('remove_child', key() + S('d')); b('get_children', key()); b('add_child', key()); b('get_children', S('x'))

def bits(*states):
    packed = bytearray((len(states) + 3) // 4)
    for n, state in enumerate(states): packed[n // 4] |= state << (6 - 2 * (n % 4))
    header = env(1, 1, u64(len(states)))
    return u32(len(header)) + header + bytes(packed) + u32(0)
def play_rbd_object_map(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    update = lambda start, end, state, *expected: b('object_map_update', u64(start) + u64(end) + u8(state) + (some(u8(expected[0])) if expected else NONE))
    show = lambda: b('object_map_load')
    r.object('nothing'); show(); update(0, 1, 1); b('object_map_snap_add'); b('object_map_snap_remove', bits(1)); b('object_map_resize', u64(0) + u8(0)); show(); r.call('hello', 'replay')
    r.object('empty', True); show(); update(0, 1, 1); b('object_map_snap_add'); b('object_map_snap_remove', bits(1)); b('object_map_resize', u64(5) + u8(3)); show(); r.call('hello', 'replay')
    r.object('map'); b('object_map_resize', u64(10) + u8(0)); show(); update(0, 0, 1); update(3, 2, 1); update(0, 11, 1); update(10, 11, 1); update(9, 10, 1); update(0, 2, 3); update(0, 10, 2, 1); show(); update(0, 3, 1, 2); show(); update(5, 6, 4); update(6, 7, 7); show(); update(0, 10, 1, 3); show(); b('object_map_update', u64(1))
    b('object_map_resize', u64(4) + u8(0)); b('object_map_resize', u64(8) + u8(0)); b('object_map_resize', u64(9) + u8(0)); b('object_map_resize', u64(12) + u8(2)); b('object_map_resize', u64(14) + u8(5)); show(); b('object_map_resize', u64(12) + u8(5)); b('object_map_resize', u64(256000001) + u8(0)); b('object_map_resize', u64(1))
    b('object_map_snap_add'); show(); b('object_map_snap_add'); b('object_map_snap_remove', bits(1, 1, 0)); show(); b('object_map_save', bits(3, 3, 3, 1)); show(); b('object_map_snap_remove', bits(1, 0, 3, 1, 1, 1)); show(); b('object_map_snap_remove'); b('object_map_save'); r.call('hello', 'replay')
    r.object('damaged', True); r.data(b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'); show(); update(0, 1, 1); b('object_map_resize', u64(1) + u8(0)); b('object_map_snap_add')

def play_rbd_data(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    show = lambda: r.call('hello', 'replay')
    r.object('copyup'); b('copyup', b'parent'); b('copyup', b'again!'); show()
    r.object('empty copyup'); b('copyup'); show(); b('copyup', b'x'); show()
    sparse = lambda extents, data: b('sparse_copyup', seq(*[u64(o) + u64(l) for o, l in extents]) + S(data))
    r.object('sparse'); sparse([(2, 2), (6, 1)], 'abc'); show(); sparse([(0, 1)], 'x'); show(); sparse([(0, 1)], ''); b('sparse_copyup')
    r.object('sparse empty'); sparse([], ''); show()
    r.object('sparse short'); sparse([(0, 5)], 'abc'); b('sparse_copyup'); show()
    r.object('sparse long'); sparse([(0, 1)], 'abc'); show()
    r.object('sparsify nothing'); b('sparsify', u64(2) + u8(1))
    for content in (b'', bytes(9), b'ab\0\0cd\0\0\0', b'abcdef', b'\0\0abcd', b'a\0\0\0\0\0\0b', bytes(8) + b'x'):
        for granule, remove in ((2, 1), (2, 0), (4, 1)):
            r.object(f'sparsify {granule} {remove}', True); r.data(content); b('sparsify', u64(granule) + u8(remove)); show()
    r.object('no snapshots'); 
    for seq_, state in ((0, 0), (5, 0), (0, 1), (5, 1), (5, 2)): b('assert_snapc_seq', u64(seq_) + u8(state))
    r.object('snapshots seen', True); r.snap_seq()
    for seq_, state in ((0, 0), (0, 1), (r.seq - 1, 0), (r.seq, 0), (r.seq + 1, 0), (r.seq - 1, 1), (r.seq, 1), (r.seq + 1, 1), (r.seq, 2)): b('assert_snapc_seq', u64(seq_) + u8(state))
    b('assert_snapc_seq', u64(1))

def migration(kind, state=1, pool=2): return env(3, 1, u8(kind), s64(pool), S('ns'), S('name'), S('id'), seq(u64(1) + u64(2)), u64(99), u8(1), u8(0), u8(state), S('text'), u8(1), S('{}'))
def play_rbd_migration(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    for exists in (False, True):
        r.object(f'no header', exists); b('migration_get'); b('migration_remove'); b('migration_set_state', u8(2) + S('x')); b('migration_set', migration(1)); b('migration_get')
    for kind in (1, 2):
        r.object(f'header {kind}'); b('create', image()); b('migration_get'); b('migration_set_state', u8(2) + S('x')); b('migration_remove'); b('migration_set', migration(kind)); b('migration_get'); b('get_features', u64(HEAD)); b('migration_set', migration(kind)); b('migration_set_state', u8(4) + S('more')); b('migration_get'); b('migration_set_state', u8(9) + S('')); b('migration_get'); b('migration_set_state', u8(1)); b('migration_remove'); b('get_features', u64(HEAD)); b('migration_get'); b('migration_set')
        r.object(f'migrating {kind}'); b('create', image(features=0x201)); b('migration_get'); b('migration_set', migration(kind)); b('migration_get'); b('migration_remove'); b('get_features', u64(HEAD))
    r.object('older spec'); b('create', image()); b('migration_set', env(1, 1, u8(1), s64(1), S(''), S('n'), S('i'), seq(), u64(0), u8(0), u8(0), u8(1), S('t'))); b('migration_get')

def group(pool=1, ident='g'): return env(1, 1, s64(pool), S(ident))
def group_image(image='i', pool=1): return env(1, 1, S(image), s64(pool))
def group_status(image='i', pool=1, state=1): return env(1, 1, group_image(image, pool), u8(state))
def group_snap(ident, name, state=0, *snaps): return env(1, 1, S(ident), S(name), u8(state), seq(*[env(1, 1, s64(p), S(i), u64(s)) for p, i, s in snaps]))
def play_rbd_groups(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    r.object('no directory'); b('group_dir_list', S('') + u64(9)); b('group_dir_remove', S('a') + S('1')); b('group_dir_rename', S('a') + S('b') + S('1')); b('group_image_list', group_image('', -1) + u64(9)); b('group_snap_list', group_snap('', '') + u64(9)); b('group_snap_get_by_id', S('x')); b('image_group_get'); b('group_image_remove', group_image()); b('group_snap_remove', S('x')); b('image_group_remove', group()); b('image_group_add', group())
    r.object('directory'); b('group_dir_add', S('a') + S('1')); b('group_dir_add', S('a') + S('2')); b('group_dir_add', S('b') + S('1')); b('group_dir_add', S('b') + S('2')); b('group_dir_add', S('') + S('3')); b('group_dir_add', S('c') + S('x-y')); b('group_dir_list', S('') + u64(9)); b('group_dir_list', S('a') + u64(9)); b('group_dir_list', S('') + u64(1)); b('group_dir_rename', S('a') + S('b') + S('1')); b('group_dir_rename', S('a') + S('c') + S('2')); b('group_dir_rename', S('a') + S('c') + S('1')); b('group_dir_rename', S('x') + S('c') + S('1')); b('group_dir_list', S('') + u64(9)); b('group_dir_remove', S('c') + S('2')); b('group_dir_remove', S('c') + S('1')); b('group_dir_list', S('') + u64(9)); b('group_dir_add'); b('dir_list', S('') + u64(9))
    r.object('group'); b('group_image_set', group_status('b', 2, 1)); b('group_image_set', group_status('a', 2, 1)); b('group_image_set', group_status('z', 1, 1)); b('group_image_set', group_status('a', 2, 0)); b('group_image_list', group_image('', -1) + u64(9)); b('group_image_list', group_image('', 0) + u64(9)); b('group_image_list', group_image('a', 2) + u64(9)); b('group_image_list', group_image('', -1) + u64(1)); b('group_image_list', group_image('', -1) + u64(0)); b('group_image_remove', group_image('z', 9)); b('group_image_remove', group_image('z', 1)); b('group_image_list', group_image('', -1) + u64(9)); b('group_image_set'); b('group_image_list')
    b('group_snap_set', group_snap('', 'n')); b('group_snap_set', group_snap('2', '')); b('group_snap_set', group_snap('2', 'n')); b('group_snap_set', group_snap('1', 'n')); b('group_snap_set', group_snap('2', 'n')); b('group_snap_set', group_snap('2', 'n', 1, (1, 'i', 4), (2, 'j', 5))); b('group_snap_set', group_snap('1', 'm', 1)); b('group_snap_set', group_snap('3', 'o', 0)); b('group_snap_set', group_snap('0', 'p', 0)); b('group_snap_set', group_snap('2', 'renamed', 1, (1, 'i', 4)))
    for after in ('', '1', '2', '3', 'x'): b('group_snap_list', group_snap(after, '') + u64(9))
    b('group_snap_list', group_snap('', '') + u64(2)); b('group_snap_list', group_snap('', '') + u64(0)); b('group_snap_get_by_id', S('2')); b('group_snap_get_by_id', S('9')); b('group_snap_remove', S('9')); b('group_snap_remove', S('2')); b('group_snap_get_by_id', S('2')); b('group_snap_list', group_snap('', '') + u64(9)); b('group_snap_set'); b('group_snap_list')
    r.object('empty image', True); b('image_group_get'); b('image_group_remove', group()); b('image_group_add', group())
    r.object('image'); b('create', image()); b('image_group_get'); b('image_group_remove', group()); b('image_group_add', group()); b('image_group_get'); b('op_features_get'); b('image_group_add', group()); b('image_group_add', group(2)); b('image_group_add', group(1, 'h')); b('image_group_remove', group(2)); b('image_group_remove', group(1, 'h')); b('image_group_remove', group()); b('image_group_get'); b('op_features_get'); b('get_features', u64(HEAD)); b('image_group_add')

def trash_spec(name='n', state=0, source=0): return env(2, 1, u8(source), S(name), utime(5, 6), utime(7), u8(state))
def play_rbd_trash(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    r.object('nothing'); b('trash_list', S('') + u64(9)); b('trash_get', S('1')); b('trash_remove', S('1')); b('trash_state_set', S('1') + u8(1) + u8(0)); b('trash_add', S('x_y') + trash_spec()); b('trash_add')
    r.object('empty', True); b('trash_list', S('') + u64(9)); b('trash_get', S('1')); b('trash_remove', S('1')); b('trash_state_set', S('1') + u8(1) + u8(0))
    r.object('trash'); b('trash_add', S('1') + trash_spec()); b('trash_add', S('1') + trash_spec('m')); b('trash_add', S('') + trash_spec('m')); b('trash_add', S('2') + trash_spec('m', 1, 3)); b('trash_add', S('3') + env(1, 1, u8(1), S('old'), utime(1), utime(2))); b('trash_list', S('') + u64(9)); b('trash_list', S('1') + u64(9)); b('trash_list', S('') + u64(1)); b('trash_list', S('') + u64(0)); b('trash_get', S('1')); b('trash_get', S('3')); b('trash_get', S('9')); b('trash_state_set', S('9') + u8(1) + u8(0)); b('trash_state_set', S('1') + u8(2) + u8(0)); b('trash_state_set', S('1') + u8(2) + u8(0)); b('trash_state_set', S('1') + u8(3) + u8(0)); b('trash_state_set', S('1') + u8(9) + u8(2)); b('trash_get', S('1')); b('trash_state_set', S('1')); b('trash_remove', S('9')); b('trash_remove', S('1')); b('trash_list', S('') + u64(9))

def peer(uuid, site, direction=0, client='cl', mirror='', pool=-1): return env(2, 1, S(uuid), S(site), S(client), s64(pool), u8(direction), S(mirror), utime(0))
def mirror_image(ident, state=1, mode=0): return env(2, 1, S(ident), u8(state), u8(mode))
def site_status(uuid, state, text='text'): return env(1, 1, u8(state), S(text), utime(3), u8(1)) if not uuid else env(2, 2, S(uuid), u8(state), S(text), utime(3), u8(1))
def play_rbd_mirror(r):
    b = lambda method, payload=b'': r.call('rbd', method, payload)
    reads = lambda: [b(m, p) for m, p in [('mirror_mode_get', b''), ('mirror_uuid_get', b''), ('mirror_peer_list', b''), ('mirror_image_list', S('') + u64(9)), ('mirror_image_get', S('i')), ('mirror_image_get_image_id', S('g')), ('mirror_image_status_get', S('g')), ('mirror_image_status_list', S('') + u64(9)), ('mirror_image_status_get_summary', b''), ('mirror_instances_list', b''), ('mirror_image_instance_get', S('g')), ('mirror_image_instance_list', S('') + u64(9)), ('mirror_image_map_list', S('') + u64(9))]]
    r.object('nothing'); reads()
    for method, payload in [('mirror_mode_set', u32(0)), ('mirror_mode_set', u32(1)), ('mirror_mode_set', u32(3)), ('mirror_uuid_set', S('')), ('mirror_peer_remove', S('u')), ('mirror_peer_add', peer('u', 's')), ('mirror_peer_ping', S('s') + S('m') + u8(1)), ('mirror_peer_set_client', S('u') + S('c')), ('mirror_peer_set_cluster', S('u') + S('c')), ('mirror_peer_set_direction', S('u') + u8(1)), ('mirror_image_remove', S('i')), ('mirror_image_set', S('i') + mirror_image('g', 0)), ('mirror_image_status_remove', S('g')), ('mirror_image_status_set', S('g') + site_status('', 4)), ('mirror_image_status_remove_down', b''), ('mirror_instances_remove', S('1')), ('mirror_image_map_remove', S('g')), ('mirror_image_snapshot_unlink_peer', u64(4) + S('u')), ('mirror_image_snapshot_set_copy_progress', u64(4) + u8(1) + u64(5))]:
        for exists in (False, True):
            r.object(f'{method} alone', exists); b(method, payload)
    r.object('mirroring'); b('mirror_uuid_set', S('own')); reads(); b('mirror_mode_set', u32(2)); b('mirror_uuid_set', S('other')); b('mirror_mode_set', u32(1)); reads()
    for p in [peer('u', 's'), peer('u', 't'), peer('v', 's'), peer('own', 'x'), peer('', 'x'), peer('w', ''), peer('w', 'w', 1), peer('w', 'w', 2, mirror='m'), peer('x', 'x', 0, mirror='m'), peer('x', 'x', 0, client=''), peer('y', 'y', 0, pool=5), peer('z', 'z', 9), env(1, 1, S('old'), S('oldsite'), S('c'), s64(-1))]: b('mirror_peer_add', p)
    b('mirror_peer_list'); b('mirror_mode_set', u32(0)); b('mirror_peer_set_client', S('u') + S('')); b('mirror_peer_set_client', S('no') + S('c')); b('mirror_peer_set_cluster', S('u') + S('w')); b('mirror_peer_set_cluster', S('u') + S('')); b('mirror_peer_set_cluster', S('u') + S('new')); b('mirror_peer_set_cluster', S('no') + S('never')); b('mirror_peer_set_direction', S('u') + u8(2)); b('mirror_peer_set_direction', S('u') + u8(9)); b('mirror_peer_set_direction', S('no') + u8(2)); b('mirror_peer_list')
    b('mirror_peer_ping', S('') + S('m') + u8(1)); b('mirror_peer_ping', S('s2') + S('') + u8(1)); b('mirror_peer_ping', S('s2') + S('m2') + u8(0)); b('mirror_peer_ping', S('new') + S('m3') + u8(1)); b('mirror_peer_ping', S('w') + S('m') + u8(1)); b('mirror_peer_ping', S('unknown') + S('m4') + u8(1)); b('mirror_peer_ping', S('unknown') + S('m4') + u8(1)); b('mirror_peer_list')
    b('mirror_peer_add', peer('rx', 'rx')); b('mirror_peer_ping', S('rx') + S('rxm') + u8(1)); b('mirror_peer_list'); b('mirror_peer_ping', S('rx') + S('changed') + u8(1)); b('mirror_peer_ping', S('elsewhere') + S('m') + u8(1)); b('mirror_peer_ping', S('rx') + S('m') + u8(1)); b('mirror_peer_list')
    for uuid in ('u', 'w', 'x', 'y', 'z', 'old', 'no'): b('mirror_peer_remove', S(uuid))
    r.object('images'); b('mirror_uuid_set', S('own')); b('mirror_mode_set', u32(1))
    b('mirror_image_set', S('i') + mirror_image('g', 0)); b('mirror_image_set', S('i') + mirror_image('g', 3)); b('mirror_image_set', S('j') + mirror_image('g')); b('mirror_image_set', S('i') + mirror_image('h')); b('mirror_image_set', S('i') + mirror_image('g', 1, 1)); b('mirror_image_set', S('j') + mirror_image('h')); b('mirror_image_set', S('k') + env(1, 1, S('l'), u8(1)))
    b('mirror_image_get', S('i')); b('mirror_image_get', S('x')); b('mirror_image_get_image_id', S('g')); b('mirror_image_get_image_id', S('x')); b('mirror_image_list', S('') + u64(9)); b('mirror_image_list', S('i') + u64(9)); b('mirror_image_list', S('') + u64(1)); b('mirror_image_list', S('') + u64(0))
    b('mirror_image_status_set', S('unknown') + site_status('', 4)); b('mirror_image_status_get', S('unknown')); b('mirror_image_status_set', S('g') + site_status('', 4)); b('mirror_image_status_get', S('g')); b('mirror_image_status_set', S('g') + site_status('peer', 1, 'bad')); b('mirror_image_status_set', S('g') + site_status('another', 6, 'ok')); b('mirror_image_status_get', S('g')); b('mirror_image_status_set', S('h') + site_status('peer', 6)); b('mirror_image_status_get', S('h')); b('mirror_image_instance_get', S('g')); b('mirror_image_instance_get', S('h')); b('mirror_image_instance_list', S('') + u64(9)); b('mirror_image_status_list', S('') + u64(9)); b('mirror_image_status_list', S('i') + u64(1)); b('mirror_image_status_list', S('') + u64(0))
    for peers in (b'', seq(), seq(peer('u', 's', 0)), seq(peer('u', 's', 1, mirror='peer')), seq(peer('u', 's', 2, mirror='peer')), seq(peer('u', 's', 1, mirror='nobody')), seq(peer('u', 's', 0), peer('v', 't', 1, mirror='peer'))): b('mirror_image_status_get_summary', peers)
    b('mirror_image_remove', S('i')); b('mirror_image_set', S('i') + mirror_image('g', 0)); b('mirror_image_status_get', S('g')); b('mirror_image_status_set', S('g') + site_status('', 5)); b('mirror_image_remove', S('i')); b('mirror_image_remove', S('i')); b('mirror_image_status_get', S('g')); b('mirror_image_list', S('') + u64(9)); b('mirror_image_status_remove_down'); b('mirror_image_status_get', S('h')); b('mirror_image_status_remove', S('h')); b('mirror_mode_set', u32(0)); reads()
    r.object('instances'); b('mirror_instances_add', S('12')); b('mirror_instances_add', S('3')); b('mirror_instances_add', S('3')); b('mirror_instances_list'); b('mirror_instances_remove', S('9')); b('mirror_instances_remove', S('3')); b('mirror_instances_list'); b('mirror_instances_add')
    image_map = lambda who, data: env(1, 1, S(who), utime(9, 8), S(data))
    r.object('map'); b('mirror_image_map_update', S('g') + image_map('1', 'd')); b('mirror_image_map_update', S('h') + image_map('2', '')); b('mirror_image_map_update', S('g') + image_map('3', 'e')); b('mirror_image_map_list', S('') + u64(9)); b('mirror_image_map_list', S('g') + u64(9)); b('mirror_image_map_list', S('') + u64(1)); b('mirror_image_map_remove', S('x')); b('mirror_image_map_remove', S('g')); b('mirror_image_map_list', S('') + u64(9)); b('mirror_image_map_update', S('x'))
    r.object('snapshots'); b('create', image())
    for n, ns in enumerate([USER, mirror_ns(0, ['u', 'v']), mirror_ns(1, ['u']), mirror_ns(2, ['u']), mirror_ns(3, [])]):
        b('snapshot_add', S(f's{n}') + u64(n + 1) + ns); b('mirror_image_snapshot_unlink_peer', u64(n + 1) + S('x')); b('mirror_image_snapshot_unlink_peer', u64(n + 1) + S('u')); b('snapshot_get', u64(n + 1)); b('mirror_image_snapshot_unlink_peer', u64(n + 1) + S('v')); b('mirror_image_snapshot_set_copy_progress', u64(n + 1) + u8(1) + u64(77)); b('snapshot_get', u64(n + 1))
    b('mirror_image_snapshot_unlink_peer', u64(99) + S('u')); b('mirror_image_snapshot_set_copy_progress', u64(99) + u8(1) + u64(77)); b('mirror_image_snapshot_unlink_peer', u64(1)); b('mirror_image_snapshot_set_copy_progress', u64(1))

def play_lock(r):
    def lock(kind=1, cookie='c', tag='', flags=0, name='l', seconds=0): r.call('lock', 'lock', env(1, 1, S(name), u8(kind), S(cookie), S(tag), S('text'), utime(seconds), u8(flags)))
    unlock = lambda cookie='c', name='l': r.call('lock', 'unlock', env(1, 1, S(name), S(cookie)))
    other = lambda cookie='c', name='l': r.call('lock', 'break_lock', env(1, 1, S(name), u8(8) + u64(77), S(cookie)))
    rename = lambda kind=1, cookie='c', tag='', new='n', name='l': r.call('lock', 'set_cookie', env(1, 1, S(name), u8(kind), S(cookie), S(tag), S(new)))
    held = lambda kind=1, cookie='c', tag='', name='l': r.call('lock', 'assert_locked', env(1, 1, S(name), u8(kind), S(cookie), S(tag)))
    names = lambda: r.call('lock', 'list_locks')
    info = lambda name='l': r.call('lock', 'get_info', env(1, 1, S(name)))
    for exists in (False, True):
        r.object('nothing', exists); unlock(); other(); rename(); held(); names(); info(); info(''); held(name=''); held(kind=0); rename(name=''); rename(kind=9); unlock(name=''); r.call('lock', 'lock'); r.call('lock', 'get_info')
    r.object('wrong'); lock(0); lock(4); lock(name=''); lock(flags=3); lock(flags=2); lock(flags=4); names()
    r.object('exclusive'); lock(); lock(); lock(flags=1); lock(flags=2); lock(cookie='d'); lock(cookie='d', flags=1); lock(cookie='d', flags=2); lock(tag='t'); lock(2); lock(2, flags=1); lock(1); held(); held(2); held(cookie='d'); held(tag='t'); names(); lock(name='m'); names(); rename(new='e'); rename(); rename(cookie='e', new='e'); rename(2, cookie='e'); unlock(); other('e'); unlock('e'); unlock('e'); info(); lock(2, 'x', 'y'); lock(2, 'z', 'y'); lock(2, 'z', 'q'); lock(1, 'z', 'y'); lock(1, 'z', 'y', 1); rename(2, 'x', 'y', 'z'); rename(2, 'x', 'y', 'w'); unlock('w'); held(2, 'z', 'y'); lock(1, 'z', 'y', 1); held(1, 'z', 'y'); unlock('z'); names()
    r.object('ephemeral'); lock(3); held(3); lock(3, 'd'); names(); unlock('d'); unlock(); names(); r.call('hello', 'replay')
    r.object('two ephemeral'); lock(3); lock(3, name='m'); unlock(); names(); held(3, name='m')

def play_refcount(r):
    def c(method, tag, implicit=0): r.call('refcount', method, env(1, 1, S(tag), u8(implicit)))
    show = lambda implicit=0: r.call('refcount', 'read', env(1, 1, u8(implicit)))
    put = lambda *tags: r.call('refcount', 'set', env(1, 1, seq(*map(S, tags))))
    for exists in (False, True):
        r.object('nothing', exists); show(); show(1); c('put', 'a'); c('put', 'a', 1); show(); show(1); r.call('hello', 'replay')
        r.object('set nothing', exists); put(); r.call('hello', 'replay'); put('a', 'b'); show()
        r.object('implicit', exists); c('get', 'a', 1); show(); show(1); c('get', 'a', 1); c('put', '', 1); show(); c('put', 'x'); c('put', 'a'); r.call('hello', 'replay')
        r.object('plain', exists); c('get', 'a'); c('get', 'b'); show(); c('put', 'x', 1); show(); c('put', 'a'); c('put', 'a'); c('put', 'a', 1); show(); c('get', 'a'); show(); c('put', 'a'); show(); c('put', 'b'); show(); r.call('hello', 'replay')
        r.object('wildcard', exists); c('get', 'a', 1); c('put', 'x', 1); show(); c('put', 'y', 1); show(); c('put', 'a', 1); show()
    r.object('malformed', True); r.call('refcount', 'get'); r.call('refcount', 'put'); r.call('refcount', 'set'); r.call('refcount', 'read')

def obj_version(number, tag): return env(1, 1, u64(number), S(tag))
def play_version(r):
    v = lambda method, payload=b'': r.call('version', method, payload)
    cond = lambda number, tag, kind: env(1, 1, obj_version(number, tag), u32(kind))
    for exists in (False, True):
        r.object('nothing', exists); v('read'); v('check_conds', env(1, 1, obj_version(0, ''), seq(cond(0, '', 1)))); v('check_conds', env(1, 1, obj_version(0, ''), seq(cond(1, '', 1)))); v('inc_conds', env(1, 1, obj_version(0, ''), seq(cond(5, '', 1)))); v('set', env(1, 1, obj_version(7, 'tag'))); v('read')
        r.object('inc', exists); v('inc', env(1, 1, obj_version(0, ''), seq()))
    r.object('versions'); v('set', env(1, 1, obj_version(7, 'tag'))); v('inc', env(1, 1, obj_version(0, ''), seq())); v('read')
    for kind in range(10):
        for number, tag in ((7, 'tag'), (8, 'tag'), (9, 'tag'), (8, 'x')): v('check_conds', env(1, 1, obj_version(0, ''), seq(cond(number, tag, kind))))
    v('check_conds', env(1, 1, obj_version(0, ''), seq(cond(8, 'tag', 1), cond(8, 'x', 6)))); v('inc_conds', env(1, 1, obj_version(0, ''), seq(cond(9, 'tag', 1)))); v('inc_conds', env(1, 1, obj_version(0, ''), seq(cond(8, 'tag', 1)))); v('read'); v('inc'); v('set'); v('check_conds'); v('read', b'x')
