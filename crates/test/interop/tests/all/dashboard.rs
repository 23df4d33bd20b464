//! The manager's web page by real requests, in a browser, and `nacre top`: what they show is what `ceph` says, and nobody else sees it.

use nacre_interop::{Cluster, Shell};
use std::path::Path;

/// `page`: where it is; `api WHAT`: a part of it.
const TOOLS: &str = r#"
page() { ceph mgr services | jq -er .dashboard; }
api() { curl -sS --max-time 10 "$(page)api/$1"; }
status() { curl -sS --max-time 10 -o /dev/null -w '%{http_code}\n' "$@"; }
"#;

/// Has the page stay at a port of its own. At a port that nobody set it is only until the usual one is free, which it is when another
/// cluster of this machine ends: between asking where it is and asking it.
const STAYS: &str = r#"
PORT=$(free_port)
ceph config set mgr mgr/dashboard/server_port $PORT
until_true 20 "page | grep '^http://127.0.0.1:$PORT/$'"
"#;

/// What starts a page with TLS at `$PORT`, with a certificate of its own making.
const TLS: &str = r#"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
  -keyout $PWD/page.key -out $PWD/page.crt 2> openssl.log
PORT=$(free_port)
ceph config set mgr mgr/dashboard/ssl_server_port $PORT
ceph config set mgr mgr/dashboard/crt_file $PWD/page.crt
ceph config set mgr mgr/dashboard/key_file $PWD/page.key
until_true 20 "ceph mgr services | jq -e '.dashboard == \"https://127.0.0.1:$PORT/\"'"
"#;

fn sh(shell: &Shell, script: &str) -> String {
    shell.sh(&format!("{TOOLS}{script}"))
}

/// The same with a page that stays where it is.
fn at_one_port(shell: &Shell, script: &str) -> String {
    sh(shell, &format!("{STAYS}{script}"))
}

#[test]
fn the_page_says_what_ceph_says() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 8).within(120);
    at_one_port(
        &shell,
        r#"
        until_true 20 "page | grep '^http://127.0.0.1:'"
        curl -sS --max-time 10 -D head $(page) | grep -q '<title>Nacre</title>'
        grep -qi "^content-security-policy: default-src 'self'; " head; grep -qi '^x-frame-options: DENY' head
        for file in page.js page.css icon.svg; do [ $(status $(page)$file) = 200 ]; done
        # The same numbers as `ceph -s`, `ceph osd df` and `ceph df` have.
        rados -p p bench 3 write -b 65536 -t 4 --no-cleanup > bench.log
        until_true 30 'api overview | jq -e ".usage.objects > 10 and .io.write_ops >= 0 and ([.osds[] | select(.device.durable_write.count > 0)] | length == 3)"'
        same() { jq -n -e --slurpfile page page.json --slurpfile ceph ceph.json "$1" > /dev/null; }
        both() { ceph -s -f json > ceph.json; sleep 1.1; api overview > page.json; same '
          $page[0] as $p | $ceph[0] as $c | $p.fsid == $c.fsid and $p.health.status == $c.health.status
          and ([$p.health.checks[].code] == [$c.health.checks | keys[]])
          and ($p.osds | length) == $c.osdmap.num_osds and ([$p.osds[] | select(.up)] | length) == $c.osdmap.num_up_osds
          and $p.pgs.count == $c.pgmap.num_pgs and $p.pgs.states == ($c.pgmap.pgs_by_state | map({(.state_name): .count}) | add)
          and $p.usage.objects == $c.pgmap.num_objects and $p.usage.total_bytes == $c.pgmap.bytes_total and $p.usage.used_bytes == $c.pgmap.bytes_used'; }
        until_true 30 both || { cat ceph.json page.json; exit 1; }
        ceph osd df -f json > ceph.json; same '[$page[0].osds[] | [.id, .pgs]] == [$ceph[0].nodes[] | [.id, .pgs]]'
        jq -e '.osds | map(.device.durable_write | .us_p50 > 0 and .us_p99 >= .us_p50 and (.counts | add) == .count) | all' page.json > /dev/null
        # Who did it, by what OSDs worked for whom: the same lines as the bill's, of a client that has gone meanwhile.
        until_true 20 "api overview | jq -e '.clients as \$c | \$c.lines[] | select(.entity == \"client.admin\" and .pool == \"p\" and .ops > 10 and .bytes > 655360 and .cpu_us > 0 and .cpu_us <= \$c.total_cpu_us)'"
        # The last minutes, and of them what is new only.
        until_true 40 "rados -p p bench 2 write -b 65536 -t 4 --no-cleanup; api history | jq -e '(.rows | length) > 1 and ([.rows[] | .[2]] | max) > 0 and ([.rows[] | .[9]] | max) > 0'"
        last=$(api history | jq '.rows[-1][0]'); until_true 20 "api history?after=$last | jq -e '(.rows | length) >= 1 and (.rows | length) < 10 and .rows[0][0] > $last'"
        # What is wrong is said in words, and goes away.
        ceph osd set noout
        until_true 20 'api overview | jq -e ".health.checks[] | select(.code == \"OSDMAP_FLAGS\") | (.means | length) > 20 and (.advice | test(\"unset\"))"'
        ceph osd unset noout; until_true 20 'api overview | jq -e ".health.checks | map(.code) | index(\"OSDMAP_FLAGS\") == null"'
        # It only shows; and it answers no page that was made to lead here.
        [ $(status -X POST $(page)api/login -d '{}') = 405 ]; [ $(status -X DELETE $(page)) = 405 ]; [ $(status $(page)api/nothing) = 404 ]
        [ $(status -H 'Host: rebound.example' $(page)api/overview) = 421 ]; [ $(status -H "Host: localhost" $(page)api/overview) = 200 ]
        # A terminal shows the same.
        top() { $NACRE top -c $DIR/ceph.conf -k $DIR/keyring "$@"; }
        top --json | jq -e --arg fsid $(ceph fsid) '.fsid == $fsid and (.osds | length) == 3' > /dev/null
        top --once > top.txt; grep -q '^HEALTH_' top.txt; grep -q 'osds     3, 3 up, 3 in' top.txt; grep -Eq '^  osd.2  .* up ' top.txt; grep -Eq '^  p +3 ' top.txt
        grep -Eq '^  client.admin +127.0.0.1 +client.[0-9]+ +p ' top.txt
        nok top
        { sleep 2.5; printf 2; sleep 1; printf q; } | TERM=xterm COLUMNS=120 timeout 20 script -qec "stty rows 30 cols 120; $NACRE top -c $DIR/ceph.conf -k $DIR/keyring; stty -a > after.stty" screen.log > /dev/null
        # It came, was drawn, and gave the terminal back: the other screen left, the cursor shown, lines and echo as before.
        grep -aq 'write p99' screen.log; grep -aq "$(printf '\033\\[?1049h')" screen.log; grep -aq "$(printf '\033\\[?1049l')" screen.log
        grep -q ' icanon' after.stty; grep -q ' echo ' after.stty"#,
    );
}

#[test]
fn beyond_this_machine_only_readers_see_it() {
    let cluster = Cluster::start(1);
    if !cluster.is_ours() {
        return;
    }
    let shell = cluster.shell().within(120);
    sh(
        &shell,
        r#"
        until_true 20 page
        # Not without TLS, and not with files that are none.
        ceph config set mgr mgr/dashboard/server_addr 0.0.0.0
        until_true 20 "ceph health detail | grep -q 'MGR_MODULE_ERROR.*dashboard.*served by TLS only: set crt_file and key_file'"
        ceph mgr services | jq -e '.dashboard == null' > /dev/null
        nok ceph config set mgr mgr/dashboard/server_addr nowhere; nok ceph config set mgr mgr/dashboard/nonsense 1
        ceph config set mgr mgr/dashboard/crt_file $PWD/none; ceph config set mgr mgr/dashboard/key_file $PWD/none
        until_true 20 "ceph health detail | grep -q 'MGR_MODULE_ERROR.*none: No such file'"
        ceph config rm mgr mgr/dashboard/server_addr"#,
    );
    sh(
        &shell,
        &format!(
            "{TLS}{}",
            r#"
        until_true 20 "ceph health detail | { ! grep -q MGR_MODULE_ERROR; }"
        get() { local path=$1; shift; status --cacert page.crt "$@" https://127.0.0.1:$PORT/$path; }
        post() { local path=$1 body=$2; shift 2; status --cacert page.crt -H 'Content-Type: application/json' -d "$body" "$@" https://127.0.0.1:$PORT/$path; }
        login() { post api/login "{\"name\": \"$1\", \"key\": \"$2\"}" -c jar; }
        [ $(get '') = 200 ]; [ $(get api/overview) = 401 ]; [ $(get api/history) = 401 ]; [ $(get api/overview -b 'nacre_login=00') = 401 ]
        nok curl -s --max-time 5 http://127.0.0.1:$PORT/
        key=$(ceph auth get-or-create-key client.reader mon 'allow r'); other=$(ceph auth get-or-create-key client.other osd 'allow *')
        writer=$(ceph auth get-or-create-key client.writer mon 'allow w')
        tenant=$(ceph auth get-or-create-key client.tenant mon 'profile rbd')
        [ $(login client.reader "$other") = 401 ]; [ $(login client.other "$other") = 401 ]; [ $(login client.nobody "$key") = 401 ]
        [ $(login client.writer "$writer") = 401 ]
        # Who has images of his own need not know those of others.
        [ $(login client.tenant "$tenant") = 401 ]; ceph auth get client.tenant > tenant.keyring
        ceph -n client.tenant -k tenant.keyring mon stat; nok ceph -n client.tenant -k tenant.keyring nacre overview
        [ $(login reader "$key") = 204 ]; grep -q nacre_login jar; grep -q '#HttpOnly_' jar; mv jar mine
        [ $(get api/overview -b mine) = 200 ]; [ $(get api/history -b mine) = 200 ]
        # 127.0.0.1 has failed five times: that is the end of what it is told, but not of those that have a key.
        [ $(login client.reader nonsense) = 429 ]; [ $(login client.nobody "$key") = 429 ]; [ $(login client.reader "$key") = 204 ]
        # Connections that ask nothing keep nobody out.
        for n in $(seq 24); do eval "exec $((n + 40))<>/dev/tcp/127.0.0.1/$PORT"; done; [ $(get '') = 200 ]
        for n in $(seq 24); do eval "exec $((n + 40))>&-"; done
        # An entity that loses its caps, or its key, sees nothing more.
        ceph auth caps client.reader mon 'allow w'; in_time 10 "[ \$(get api/overview -b mine) = 401 ]"
        ceph auth caps client.reader mon 'allow r'; in_time 10 "[ \$(get api/overview -b mine) = 200 ]"
        [ $(status --cacert page.crt -X POST -b mine https://127.0.0.1:$PORT/api/logout) = 415 ]
        [ $(post api/logout '' -b mine) = 204 ]; [ $(get api/overview -b mine) = 401 ]
        # A certificate whose key is not there yet ends nothing.
        cp page.crt good.crt; echo half > page.crt; sleep 3
        [ $(status --cacert good.crt https://127.0.0.1:$PORT/) = 200 ]; ceph mgr services | jq -e '.dashboard != null' > /dev/null
        cp good.crt page.crt
        # Port 0 switches it off.
        ceph config set mgr mgr/dashboard/ssl_server_port 0; until_true 20 "ceph mgr services | jq -e '.dashboard == null'"
        nok curl -s --max-time 5 --cacert page.crt https://127.0.0.1:$PORT/"#
        ),
    );
}

#[test]
fn slow_requests_are_shown_with_their_stages() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("p", 8).within(120);
    at_one_port(
        &shell,
        r#"
        ceph config set osd osd_op_complaint_time 1; ceph osd set nodown
        kill -STOP $(cat $DIR/run/osd.2.pid)
        for n in 1 2 3 4 5 6 7 8; do timeout 500 rados -p p put held$n - < /dev/null & echo $! >> writers; done
        until_true 30 "api overview | jq -e '.slow_requests | map(select(.osd != 2 and .age_ms > 1000 and (.waits_for | test(\"disks of osd.\\\\[2\\\\]|a lease\")) and (.description | test(\"held\")))) | length > 0'" \
          || { api overview | jq .slow_requests; exit 1; }
        api overview | jq -e '.slow_requests | map(select(.stages | map(.stage) | index("logged") != null)) | map([.stages[].at_ms, .age_ms] | . == sort) | all' > /dev/null
        $NACRE top -c $DIR/ceph.conf -k $DIR/keyring --once | sed -n '/^Slow requests/,$p' | grep 'osd_op(client.*held' > /dev/null
        kill -CONT $(cat $DIR/run/osd.2.pid); ceph osd unset nodown; for writer in $(cat writers); do wait $writer; done
        until_true 30 "api overview | jq -e '.slow_requests == []'""#,
    );
}

/// Screenshots stay in the folder that `NACRE_SHOTS` names, if it does.
#[test]
#[ignore = "fetches a browser, 70 MB: cargo test -p nacre-interop --test all dashboard:: -- --ignored"]
fn a_browser_shows_it_without_complaint() {
    let cluster = Cluster::start(3);
    if !cluster.is_ours() {
        return;
    }
    let look = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/page-look");
    let shots = std::env::var("NACRE_SHOTS").unwrap_or_else(|_| "shots".to_owned());
    let shell = cluster.pool("p", 8).within(400).with("LOOK", look.display()).with("SHOTS", shots);
    at_one_port(
        &shell,
        r#"
        until_true 20 page
        rbd create p/disk --size 64M; rbd bench p/disk --io-type write --io-size 4K --io-total 8M > bench.log
        rados -p p bench 8 write -b 65536 -t 8 --no-cleanup >> bench.log & writer=$!
        ceph osd set noout
        cat > report.html <<'END'
<!doctype html><html><title>nacre bench</title><style>body{color:red}</style><h1>nacre bench</h1><script>document.title = 'run'</script>
<img src="http://elsewhere.example/x.png"><p onclick="alert(1)">Medians</p><svg viewBox="0 0 9 9" width="9"><rect width="5" height="5" fill="blue"></rect></svg></html>
END
        $LOOK $(page) $SHOTS/loopback --seconds 12 --report report.html > look.json; cat look.json
        # Nothing is complained of but the handler inside the report, which is not run.
        jq -e '(.complaints | map(select(test("inline event handler.*has been blocked") | not))) == [] and .elsewhere == [] and .osds == 3 and .too_wide == {"wide": 0, "phone": 0} and .bench > 0 and (.title | test("HEALTH_WARN"))' look.json > /dev/null
        for word in OSDMAP_FLAGS 'What to do' osd.2 'durable writes' p/disk client.admin 'copies are where they belong'; do jq -e --arg word "$word" '.text | contains($word)' look.json > /dev/null || { echo "no $word"; exit 1; }; done
        wait $writer; ceph osd unset noout"#,
    );
    sh(
        &shell,
        &format!(
            "{TLS}{}",
            r#"
        key=$(ceph auth get-or-create-key client.reader mon 'allow r')
        $LOOK https://127.0.0.1:$PORT/ $SHOTS/tls --login reader "$key" > look.json; cat look.json
        # The browser mentions the refusal of what it asked before the login, and nothing else.
        jq -e '(.complaints | map(select(test("401") | not))) == [] and .elsewhere == [] and .osds == 3 and (.text | contains("Log out"))' look.json > /dev/null"#
        ),
    );
}
