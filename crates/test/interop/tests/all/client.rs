//! Our own client (daemon/client) beside stock ones: on `nacre up`, and with `NACRE_TEST_CEPH` on a real Ceph.

use nacre_buf::BufList;
use nacre_client::{Access, Client, Finished, conf};
use nacre_env::real::RealNet;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_interop::{Cluster, Shell};
use nacre_msg::{OsdOpReply, SubOp};
use nacre_objecter::Request;
use nacre_service::Messenger;
use nacre_types::{Errno, ObjectLocator};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<Box<OsdOpReply>, Errno>;

struct User {
    client: Client,
    pool: i64,
}

impl User {
    /// Connects as the shell's programs do.
    fn connect(shell: &Shell) -> Self {
        let text = shell.sh("cat $CEPH_CONF");
        let keyring = conf::option(&text, "keyring").expect("the harness names one");
        let access =
            Access::parse(&text, &shell.sh(&format!("cat {keyring}")), "admin").expect("whole files");
        let clock = RealClock::start();
        let net = Box::new(RealNet::new().expect("file descriptors"));
        let messenger = Messenger::new(net, clock.wall().sec.into());
        let mut client = Client::new(access, Box::new(clock), Box::new(SystemEntropy::default()), messenger);
        client.begin();
        let mut user = Self { client, pool: -1 };
        user.until("a map", |client| client.objecter().map().epoch > 0);
        let name = shell.sh("echo $POOL");
        user.pool = user.client.objecter().map().pool_by_name(&name).expect("the pool of the test");
        user
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Client) -> bool) {
        let start = Instant::now();
        while !holds(&self.client) {
            assert!(start.elapsed() < PATIENCE, "no {what}: {:?}", self.client);
            self.client.flush();
            self.client.turn(Duration::from_millis(50)).expect("a client that goes on");
        }
    }

    fn begin(&mut self, pool: i64, name: &str, op: SubOp) -> u64 {
        let request = Request::new(ObjectLocator::in_pool(pool), name.to_owned(), vec![op]);
        self.client.submit(request).expect("room")
    }

    fn turn(&mut self) -> Vec<(u64, Outcome)> {
        self.client.flush();
        self.client.turn(Duration::from_millis(50)).expect("a client that goes on");
        let finished = self.client.take_finished().into_iter();
        let op = |one| match one {
            Finished::Op { tid, outcome } => Some((tid, outcome)),
            _ => None,
        };
        finished.filter_map(op).collect()
    }

    fn ask_in(&mut self, pool: i64, name: &str, op: SubOp) -> Outcome {
        let (wanted, start) = (self.begin(pool, name, op), Instant::now());
        loop {
            assert!(start.elapsed() < PATIENCE, "no answer about {name}: {:?}", self.client);
            if let Some((_, outcome)) = self.turn().into_iter().find(|(tid, _)| *tid == wanted) {
                return outcome;
            }
        }
    }

    /// The result and the data of one operation.
    fn ask(&mut self, name: &str, op: SubOp) -> (i32, Vec<u8>) {
        let reply = self.ask_in(self.pool, name, op).expect("an answer of an OSD");
        let data = reply.ops.first().map(|op| op.outdata.to_bytes().to_vec());
        (reply.result, data.unwrap_or_default())
    }
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|nth| (nth * 31 + nth / 4096) as u8).collect()
}

#[test]
fn stock_clients_and_ours_read_what_the_other_wrote() {
    let cluster = Cluster::start(3);
    let shell = cluster.pool("own", 16);
    let mut user = User::connect(&shell);
    for (name, bytes) in [("small", 3), ("page", 4096), ("large", 4 << 20)] {
        let content = data(bytes);
        std::fs::write(shell.folder().join("theirs"), &content).expect("a writable folder");
        shell.sh(&format!("rados -p $POOL put theirs-{name} theirs"));
        assert!(user.ask(&format!("theirs-{name}"), SubOp::read(0, 0)) == (0, content.clone()), "{name}");
        let written = SubOp::write_full(BufList::from(content));
        assert_eq!(user.ask(&format!("ours-{name}"), written), (0, Vec::new()));
        shell.sh(&format!("rados -p $POOL get ours-{name} ours; cmp ours theirs"));
    }
    assert_eq!(user.ask("ours-page", SubOp::write(4090, b"beyond the end".to_vec().into())).0, 0);
    assert_eq!(user.ask("ours-page", SubOp::read(4088, 100)).1.len(), 16);
    assert_eq!(shell.sh("rados -p $POOL stat ours-page | grep -o 'size 4104'"), "size 4104");
    assert_eq!(user.ask("nothing", SubOp::read(0, 0)).0, Errno::ENOENT.negated());
    // The monitor is asked before a pool is said not to exist.
    let outcome = user.ask_in(1 << 40, "nothing", SubOp::read(0, 0));
    assert_eq!(outcome.err(), Some(Errno::ENOENT));
    assert_eq!(user.client.bad_messages(), 0);
}

#[test]
fn every_answer_holds_while_osds_die_and_come_back() {
    let Some(cluster) = Cluster::start_processes(3) else { return };
    let shell = cluster.pool("killed", 16);
    let mut user = User::connect(&shell);
    let (mut open, mut newest, mut count) = (BTreeMap::new(), BTreeMap::new(), 0_u32);
    let block = |count: u32| format!("{count:08}").into_bytes().repeat(512);
    let mut write_for = |user: &mut User, seconds: u64| {
        let (start, before) = (Instant::now(), count);
        let mut going = true;
        while going || !open.is_empty() {
            // All of them may wait for the one that was killed until it is down.
            going = start.elapsed() < Duration::from_secs(seconds) || count <= before + 50;
            assert!(start.elapsed() < PATIENCE, "{} writes are not answered: {:?}", open.len(), user.client);
            while going && open.len() < 8 {
                let name = format!("object {}", count % 64);
                let tid = user.begin(user.pool, &name, SubOp::write_full(block(count).into()));
                open.insert(tid, (name, count));
                count += 1;
            }
            for (tid, outcome) in user.turn() {
                let (name, written) = open.remove(&tid).expect("one answer for each write");
                assert_eq!(outcome.map(|reply| reply.result), Ok(0), "{name}");
                // Writes to one object are answered in order.
                assert!(newest.insert(name, written).is_none_or(|older| older < written));
            }
        }
        assert!(count > before + 50, "writes went on");
    };
    write_for(&mut user, 1);
    for osd in [1, 2] {
        // Its command line starts it again.
        shell.sh(&format!(
            "pid=$(cat $DIR/run/osd.{osd}.pid); tr '\\0' '\\n' < /proc/$pid/cmdline > line.{osd}; kill -KILL $pid"
        ));
        write_for(&mut user, 3);
        shell.sh(&format!(
            "mapfile -t line < line.{osd}; setsid \"${{line[@]}}\" >> $DIR/log/osd.{osd}.log 2>&1 < /dev/null &"
        ));
        write_for(&mut user, 3);
        cluster.await_clean();
    }
    for (name, written) in newest {
        assert!(user.ask(&name, SubOp::read(0, 0)).1 == block(written), "{name}");
    }
    assert_eq!(user.client.bad_messages(), 0);
}
