//! A stock radosgw on our cluster: S3 as its clients use it, and what its administrators look at.

use nacre_interop::{Cluster, Shell};

/// `rgw_start`, and `admin ...` as the user of that gateway.
const TOOLS: &str = r#"
rgw() { ${RUN:-} "$1" -c $CEPH_CONF -n client.rgw.t --keyring $PWD/rgw.keyring --log-file $PWD/rgw.log --run-dir $PWD "${@:2}"; }
rgw_start() {
  ceph auth get-or-create client.rgw.t mon 'allow rw' osd 'allow rwx' mgr 'allow rw' -o rgw.keyring
  # What $! names is the gateway itself, no shell around it.
  RUN=exec rgw radosgw -f --rgw-data $PWD --admin-socket $PWD/rgw.asok --rgw-frontends "beast endpoint=127.0.0.1:$PORT" \
    --rgw-lc-debug-interval 1 --rgw-enable-usage-log true --rgw-usage-log-tick-interval 1 --rgw-usage-log-flush-threshold 1 \
    ${RGW_OPTIONS:-} \
    > rgw.out 2>&1 &
  echo $! > rgw.pid
  for try in $(seq 2000); do curl -s -o /dev/null http://127.0.0.1:$PORT/ && return 0; kill -0 $(cat rgw.pid) || break; sleep 0.1; done
  echo "radosgw did not come up"; tail -20 rgw.out rgw.log; return 1
}
admin() { rgw radosgw-admin "$@" 2>> admin.err; }
"#;

/// An S3 client: requests with signatures of version 2, and what is in their answers.
const CLIENT: &str = r#"
import base64, email.utils, hashlib, hmac, http.client, os, re, sys, time, urllib.parse
SIGNED = {'acl', 'delete', 'lifecycle', 'partNumber', 'uploadId', 'uploads', 'versionId', 'versioning', 'versions'}
def s3(method, path, body=b'', want=200, headers={}):
    place, _, query = path.partition('?')
    signed = sorted(part for part in query.split('&') if part.split('=')[0] in SIGNED)
    date = email.utils.formatdate(usegmt=True)
    text = '\n'.join([method, headers.get('Content-MD5', ''), '', date, place + ('?' + '&'.join(signed) if signed else '')])
    key = base64.b64encode(hmac.new(b'secret', text.encode(), hashlib.sha1).digest()).decode()
    # A killed radosgw leaves a lock of its lifecycle thread behind, for rgw_lc_lock_max_time, 90 s.
    wire = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=120)
    wire.request(method, path, body, {'Date': date, 'Authorization': 'AWS access:' + key, **headers})
    reply = wire.getresponse()
    data = reply.read()
    assert reply.status == want, (method, path, reply.status, data)
    s3.headers = reply.headers
    return data
def all_of(tag, xml): return [urllib.parse.unquote(found) for found in re.findall(f'<{tag}>([^<]*)</{tag}>', xml.decode())]
def upload(path, parts):
    [ident] = all_of('UploadId', s3('POST', path + '?uploads'))
    done = ''
    for number, part in enumerate(parts, 1):
        s3('PUT', f'{path}?partNumber={number}&uploadId={ident}', part)
        done += f'<Part><PartNumber>{number}</PartNumber><ETag>{s3.headers["ETag"]}</ETag></Part>'
    return ident, f'<CompleteMultipartUpload>{done}</CompleteMultipartUpload>'.encode()
"#;

/// Ends the gateway, however the test ends.
pub(crate) struct Gateway(Shell);

impl Gateway {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, "")
    }

    /// With more of radosgw's options, each time that it starts.
    fn start_with(cluster: &Cluster, options: &str) -> Self {
        let port = cluster.shell().sh("free_port");
        let shell = cluster.shell().with("PORT", port).with("TOOLS", TOOLS).with("RGW_OPTIONS", options);
        let gateway = Self(shell.within(240));
        gateway.sh("rgw_start
            admin user create --uid u --display-name U --access-key access --secret secret > /dev/null");
        gateway
    }

    fn sh(&self, script: &str) -> String {
        self.0.sh(&format!("{TOOLS}{script}"))
    }

    pub(crate) fn s3(&self, script: &str) -> String {
        self.0.python(&format!("{CLIENT}{script}"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.run("kill -9 $(cat rgw.pid)");
    }
}

#[test]
fn a_stock_radosgw_serves_s3() {
    let cluster = Cluster::start(3);
    let gateway = Gateway::start(&cluster);
    // Listings, page by page, with what is overwritten and removed.
    gateway.s3(r#"
s3('PUT', '/bucket')
names = [f'{a}/{b}' for a in 'abc' for b in range(6)] + ['plain', 'zz', '\u00e9']
quoted = [urllib.parse.quote(name) for name in names]
for name in quoted: s3('PUT', '/bucket/' + name, b'first')
for name in quoted: s3('PUT', '/bucket/' + name, name.encode())
assert all(s3('GET', '/bucket/' + name) == name.encode() for name in quoted)
listed, marker = [], ''
while True:
    page = s3('GET', f'/bucket?max-keys=4&marker={urllib.parse.quote(marker)}')
    listed += all_of('Key', page)
    if all_of('IsTruncated', page) == ['false']: break
    marker = listed[-1]
assert listed == sorted(names, key=str.encode), listed
page = s3('GET', '/bucket?delimiter=/&max-keys=3')
assert (all_of('Prefix', page)[1:], all_of('Key', page)) == (['a/', 'b/', 'c/'], []), page
page = s3('GET', '/bucket?delimiter=/&marker=b/')
assert (all_of('Prefix', page)[1:], all_of('Key', page)) == (['c/'], ['plain', 'zz', '\u00e9']), page
assert all_of('Key', s3('GET', '/bucket?prefix=b/')) == [f'b/{n}' for n in range(6)]
s3('DELETE', '/bucket/zz', want=204); s3('GET', '/bucket/zz', want=404); s3('DELETE', '/bucket/zz', want=204)
"#);
    // Uploads in parts: completed, given up, and replaced.
    gateway.s3(r#"
parts = [os.urandom(5 << 20), os.urandom(5 << 20), b'the end']
ident, done = upload('/bucket/large', parts)
s3('POST', '/bucket/large?uploadId=' + ident, done)
assert s3('GET', '/bucket/large') == b''.join(parts)
assert s3('GET', '/bucket/large', want=206, headers={'Range': 'bytes=5242870-5242889'}) == b''.join(parts)[5242870:5242890]
ident, _ = upload('/bucket/given-up', [parts[0]])
assert all_of('UploadId', s3('GET', '/bucket?uploads')) == [ident]
s3('DELETE', '/bucket/given-up?uploadId=' + ident, want=204)
assert all_of('UploadId', s3('GET', '/bucket?uploads')) == []
s3('PUT', '/bucket/large', b'small'); assert s3('GET', '/bucket/large') == b'small'
"#);
    // Versions.
    gateway.s3(r#"
s3('PUT', '/versions'); s3('PUT', '/versions/o', b'from before')
s3('PUT', '/versions?versioning', b'<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>')
def put(data): s3('PUT', '/versions/o', data); return s3.headers['x-amz-version-id']
one, two = put(b'one'), put(b'two')
s3('DELETE', '/versions/o', want=204); marker = s3.headers['x-amz-version-id']
s3('GET', '/versions/o', want=404); assert s3('GET', '/versions/o?versionId=' + one) == b'one' and s3('GET', '/versions/o?versionId=null') == b'from before'
assert all_of('Key', s3('GET', '/versions')) == []
assert all_of('VersionId', s3('GET', '/versions?versions')) == [marker, two, one, 'null']
s3('DELETE', '/versions/o?versionId=' + marker, want=204); assert s3('GET', '/versions/o') == b'two'
s3('DELETE', '/versions/o?versionId=' + two, want=204); assert s3('GET', '/versions/o') == b'one'
s3('DELETE', '/versions/o?versionId=' + one, want=204); s3('DELETE', '/versions/o?versionId=null', want=204)
assert all_of('VersionId', s3('GET', '/versions?versions')) == []; s3('DELETE', '/versions', want=204)
"#);
    what_administrators_see(&gateway);
}

fn what_administrators_see(gateway: &Gateway) {
    gateway.sh(r#"
        # The index counts right, also in other shards; what is removed goes in the end.
        counted() { admin bucket stats --bucket bucket | jq '.usage["rgw.main"].num_objects'; }
        [ $(counted) = 21 ]
        admin bucket check --bucket bucket --fix > /dev/null; [ $(counted) = 21 ]
        admin bi list --bucket bucket | jq -e 'map(select(.type == "plain")) | length == 21' > /dev/null
        admin reshard add --bucket bucket --num-shards 17 > /dev/null; admin reshard list | jq -e 'length == 1' > /dev/null
        admin reshard cancel --bucket bucket > /dev/null; [ "$(admin reshard list | jq length)" = 0 ]
        admin bucket reshard --bucket bucket --num-shards 13 > /dev/null; [ $(counted) = 21 ]
        admin gc list --include-all | jq -e 'length > 0' > /dev/null
        rados -p default.rgw.buckets.data ls | grep -q __multipart
        admin gc process --include-all; [ "$(admin gc list --include-all | jq length)" = 0 ]
        [ "$(rados -p default.rgw.buckets.data ls | grep -c -e __multipart -e __shadow)" = 0 ]
        until_true 60 'admin usage show --uid u | jq -e ".summary[0].total.successful_ops > 60"'
        admin usage trim --uid u; admin usage show --uid u | jq -e '.summary | length <= 1' > /dev/null"#);
    // A lifecycle of days that last a second.
    gateway.s3(r#"
rule = '<Rule><ID>r</ID><Prefix>a/</Prefix><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>'
config = f'<LifecycleConfiguration>{rule}</LifecycleConfiguration>'.encode()
md5 = base64.b64encode(hashlib.md5(config).digest()).decode()
s3('PUT', '/bucket?lifecycle', config, headers={'Content-MD5': md5})
assert all_of('Prefix', s3('GET', '/bucket?lifecycle')) == ['a/']
"#);
    gateway.sh("admin lc list | jq -e 'length == 1' > /dev/null
        until_true 60 'admin lc process; [ $(admin bucket stats --bucket bucket | jq \".usage[\\\"rgw.main\\\"].num_objects\") = 15 ]'");
    gateway.s3(r#"
assert all_of('Key', s3('GET', '/bucket?prefix=a/')) == []
for name in all_of('Key', s3('GET', '/bucket')): s3('DELETE', '/bucket/' + urllib.parse.quote(name), want=204)
s3('DELETE', '/bucket', want=204); s3('GET', '/bucket', want=404)
"#);
}

/// Requests of several threads, each of which says what it has acknowledged; what is cut off ends its thread.
const THREADS: &str = r#"
import threading
acknowledged, cut, going = {}, set(), True
def patient(*args, **more):
    # While its index gets other shards, a bucket may say that it is busy.
    for attempt in range(1000):
        try: return s3(*args, **more)
        except AssertionError as failure:
            if ' 503, ' not in str(failure): raise
            time.sleep(0.2)
    raise AssertionError('503 for 200 s')
def start(work, count=4):
    def guarded(n):
        try: work(n)
        except (OSError, http.client.HTTPException): pass
    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads: thread.start()
    return threads
def listing(bucket):
    names, marker = [], ''
    while True:
        page = s3('GET', f'/{bucket}?marker={urllib.parse.quote(marker)}')
        names += all_of('Key', page)
        if all_of('IsTruncated', page) == ['false']: return names
        marker = names[-1]
"#;

/// `test/rgw-scale` does the same with a hundred thousand objects.
#[test]
fn a_bucket_under_load_gets_other_shards_and_each_object_is_listed_once() {
    let cluster = Cluster::start(3);
    let gateway = Gateway::start(&cluster);
    let script = r#"
import json, subprocess
s3('PUT', '/bucket')
def fill(n):
    for number in range(n, 2000, 8):
        name = f'o{number:05}'
        s3('PUT', f'/bucket/{name}', name.encode()); acknowledged[name] = name.encode()
for thread in start(fill, 8): thread.join()
assert len(acknowledged) == 2000
def change(n):
    number = n
    while going:
        name, new = f'o{number:05}', f'n{number:05}'
        acknowledged.pop(name, None); patient('DELETE', f'/bucket/{name}', want=204)
        patient('PUT', f'/bucket/{new}', b'new'); acknowledged[new] = b'new'
        page = all_of('Key', patient('GET', f'/bucket?max-keys=100&marker={name}'))
        assert page == sorted(set(page)), page
        number += 4
threads = start(change)
time.sleep(1)
subprocess.run(['bash', '-c', os.environ['TOOLS'] + 'admin bucket reshard --bucket bucket --num-shards 31 --yes-i-really-mean-it'], check=True, stdout=subprocess.DEVNULL)
time.sleep(1); going = False
for thread in threads: thread.join()
listed = listing('bucket')
assert listed == sorted(acknowledged), set(listed) ^ set(acknowledged)
for name in listed[::20]: assert s3('GET', f'/bucket/{name}') == acknowledged[name]
print(len(listed))
"#;
    let listed = gateway.s3(&format!("{THREADS}{script}"));
    gateway.0.with("LISTED", listed).sh(&format!(
        r#"{TOOLS}
        admin bucket stats --bucket bucket > stats; echo "$LISTED are listed; $(jq -c '[.num_shards, .usage]' stats)"
        jq -e '.num_shards == 31' stats > /dev/null
        # A change that was under way then, a deletion as well, may only be announced in the index until a listing looks two minutes later: also
        # on Ceph's OSDs. The header counts what the index has, and each difference to what is listed is announced.
        admin bi list --bucket bucket | jq '[.[] | select(.type == "plain") | .entry]' > entries
        jq '[.[] | select(.exists == true or .exists == "true")] | length' entries > there
        jq '[.[] | select(.pending_map | length > 0)] | length' entries > announced
        echo "$(cat there) there, $(cat announced) announced"
        jq -e '.usage["rgw.main"].num_objects == '$(cat there) stats > /dev/null
        off=$(( $(cat there) - LISTED )); [ ${{off#-}} -le $(cat announced) ]; [ $(cat announced) -le 8 ]"#
    ));
}

#[test]
fn a_killed_radosgw_loses_nothing_that_it_acknowledged_and_leaves_only_what_was_cut_off() {
    let cluster = Cluster::start(3);
    let gateway = Gateway::start_with(&cluster, "--rgw-enable-lc-threads false");
    gateway.s3("s3('PUT', '/killed')");
    let load = r#"
import json, signal
def work(n):
    count = 0
    while True:
        name, data = f'{n}-{count}', os.urandom(9 << 20)
        cut.add(name)
        if n % 2:
            # Its own hand: the headers of the last answer are another thread's as well.
            [ident] = all_of('UploadId', s3('POST', f'/killed/{name}?uploads'))
            parts, done = [data[:5 << 20], data[5 << 20:]], ''
            for number, part in enumerate(parts, 1):
                s3('PUT', f'/killed/{name}?partNumber={number}&uploadId={ident}', part)
                done += f'<Part><PartNumber>{number}</PartNumber><ETag>{hashlib.md5(part).hexdigest()}</ETag></Part>'
            s3('POST', f'/killed/{name}?uploadId={ident}', f'<CompleteMultipartUpload>{done}</CompleteMultipartUpload>'.encode())
        else: s3('PUT', f'/killed/{name}', data)
        acknowledged[name] = hashlib.md5(data).hexdigest(); cut.discard(name); count += 1
threads = start(work)
while len(acknowledged) < 6: time.sleep(0.05)
os.kill(int(open('rgw.pid').read()), signal.SIGKILL)
for thread in threads: thread.join()
json.dump([acknowledged, sorted(cut)], open('answers', 'w'))
"#;
    let check = r#"
import json
acknowledged, cut = json.load(open('answers'))
listed = listing('killed')
assert set(acknowledged) <= set(listed) <= set(acknowledged) | set(cut), (listed, acknowledged, cut)
for name, md5 in acknowledged.items(): assert hashlib.md5(s3('GET', f'/killed/{name}')).hexdigest() == md5, name
for name in listed: s3('DELETE', f'/killed/{name}', want=204)
# One of those that were under way is given up by hand, the others by a lifecycle.
given_up = s3('GET', '/killed?uploads')
for name, ident in list(zip(all_of('Key', given_up), all_of('UploadId', given_up)))[:1]:
    s3('DELETE', f'/killed/{name}?uploadId={ident}', want=204)
assert listing('killed') == []
rule = '<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>'
config = f'<LifecycleConfiguration><Rule><ID>r</ID><Prefix></Prefix><Status>Enabled</Status>{rule}</Rule></LifecycleConfiguration>'.encode()
md5 = base64.b64encode(hashlib.md5(config).digest()).decode()
s3('PUT', '/killed?lifecycle', config, headers={'Content-MD5': md5})
print(len(cut))
"#;
    gateway.s3(&format!("{THREADS}{load}"));
    gateway.sh("rgw_start");
    let cut = gateway.s3(&format!("{THREADS}{check}"));
    // The lifecycle is carried out here, and not by the gateway's threads: these wait 5 s for each lock that another one has, or that the
    // killed one left for 90 s. What was being entered in the index at the kill stays there for 120 s (`CEPH_RGW_TAG_TIMEOUT`), and goes with
    // the next listing. Of a plain upload that is cut off its tail stays, by a tag; of one in parts the part that was under way. radosgw alone
    // knows of these.
    gateway.0.with("CUT", cut).within(400).sh(&format!(
        r#"{TOOLS}
        until_true 200 'admin lc process --rgw-lc-debug-interval 1; admin bucket list --bucket killed; admin bi list --bucket killed | jq -e "length == 0"'
        until_true 60 'admin gc process --include-all; admin gc list --include-all | jq -e "length == 0"'
        rados -p default.rgw.buckets.data ls | sed 's/_[0-9]*$//' | sort -u > left
        jq -r '.[1][] | "_" + . + "."' answers > names
        nok sh -c 'grep -v "__shadow_[.]" left | grep -vF -f names'
        [ $(grep -c "__shadow_[.]" left) -le $CUT ]
        admin bucket stats --bucket killed | jq -e '[.usage[].num_objects] | add // 0 | . == 0' > /dev/null"#
    ));
}

/// `nacre up --rgw --mds`: a bucket and a file system at once, the same after the next start, and no daemon stays behind.
#[test]
fn up_starts_a_radosgw_and_a_metadata_server_beside_the_cluster() {
    // The cluster of the harness gives the environment.
    let Some(cluster) = Cluster::start_processes(1) else { return };
    let script = r#"
        D=$PWD/c; UP=; CHILDREN=; trap 'kill -9 $UP $(cat $D/run/*.pid 2>/dev/null) 2>/dev/null || :' EXIT
        PORT=$(free_port)
        up() { setsid $NACRE up --dir $D --osds 3 --osd-size 1G --rgw $PORT --mds "$@" > up.out 2>&1 < /dev/null & UP=$!; }
        ready() {
            for try in $(seq 2000); do grep -q '^ready in' up.out && break; kill -0 $UP || { cat up.out; return 1; }; sleep 0.1; done
            CHILDREN=$(cat $D/run/rgw.a.pid $D/run/mds.a.pid); kill -0 $CHILDREN
        }
        ended() { kill $UP; wait $UP; for pid in $CHILDREN; do nok kill -0 $pid; done; tail -1 up.out | grep -qx stopped; }
        nok env PATH=/nowhere $NACRE up --dir $D --mds; { PATH=/nowhere $NACRE up --dir $D --rgw 2>&1 || :; } | grep -q 'apt-get install radosgw'
        up; ready
        # A port that is in use is refused before anything is made.
        { $NACRE up --dir $PWD/other --rgw $PORT 2>&1 || :; } | grep -q 'another port'; [ ! -e $PWD/other/ceph.conf ]
        export CEPH_CONF=$D/ceph.conf
        radosgw-admin user create --uid u --display-name u --access-key access --secret secret > /dev/null
        s3() { curl -sf --aws-sigv4 aws:amz:default:s3 --user access:secret -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@"; }
        s3 -X PUT http://127.0.0.1:$PORT/bucket; s3 -X PUT --data-binary 'what is kept' http://127.0.0.1:$PORT/bucket/object
        cat > file.py << 'END'
import cephfs, sys
fs = cephfs.LibCephFS(conffile=''); fs.mount()
if sys.argv[1] == 'write':
    fs.mkdir('/folder', 0o755)
    fd = fs.open('/folder/file', 'w', 0o644); fs.write(fd, b'what is kept', 0); fs.fsync(fd, 0); fs.close(fd)
fd = fs.open('/folder/file', 'r'); assert fs.read(fd, 0, 100) == b'what is kept'; fs.close(fd)
fs.unmount()
END
        /usr/bin/python3 file.py write
        ceph fs ls -f json | jq -e '.[0].name == "cephfs"'
        ended
        up --processes --restart; ready
        [ "$(s3 http://127.0.0.1:$PORT/bucket/object)" = 'what is kept' ]; /usr/bin/python3 file.py read
        # One that ends is started again.
        kill -9 $(cat $D/run/rgw.a.pid)
        until_true 30 "grep -q '^rgw.a started again' up.out && s3 http://127.0.0.1:$PORT/bucket/object > again"
        grep -q '^rgw.a ended: signal: 9' up.out; grep -qx 'what is kept' again
        CHILDREN=$(cat $D/run/rgw.a.pid $D/run/mds.a.pid); ended"#;
    cluster.shell().within(120).sh(script);
}
