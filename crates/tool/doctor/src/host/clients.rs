//! [`Clients`]: processes of this machine that are connected with OSDs, and how busy the busiest thread of each is. A client whose thread
//! has no processor time left keeps OSDs waiting, and not they it.

use super::Host;
use super::processes::DAEMONS;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Connections that are looked at; a machine with more is none whose clients fit into a report.
const SOCKETS_MAX: usize = 100_000;
/// Descriptors of one process, likewise.
const FILES_MAX: usize = 65_536;
/// As `/proc/net/tcp` calls a connection that is open.
const ESTABLISHED: &str = "01";

/// Processor time of the threads of client processes, at one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Clients {
    /// By process: its name, its connections with OSDs, and what each thread has used.
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    comm: String,
    connections: usize,
    threads: BTreeMap<u32, Thread>,
}

/// Since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    name: String,
    /// On a processor.
    on: Duration,
    /// Waiting for one that others had.
    waited: Duration,
}

/// A client process between two moments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientProcess {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    /// Its connections with OSDs.
    pub(crate) connections: usize,
    /// The name of the thread that had most to do.
    pub(crate) thread: String,
    /// The share of the time that it was on a processor, and in which it wanted to be.
    pub(crate) on: f64,
    pub(crate) wanted: f64,
}

impl Clients {
    /// Those that are connected with one of these now. What we may not read of others' processes is left out.
    pub(crate) fn find(host: &Host, osds: &BTreeSet<SocketAddr>) -> Self {
        let sockets: BTreeSet<u64> = ["proc/net/tcp", "proc/net/tcp6"]
            .iter()
            .flat_map(|file| sockets_to(&host.text(file).unwrap_or_default(), osds))
            .collect();
        let mut processes = BTreeMap::new();
        if sockets.is_empty() {
            return Self { processes };
        }
        for pid in host.names("proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
            let comm = host.text(format!("proc/{pid}/comm")).unwrap_or_default();
            if pid == std::process::id() || DAEMONS.contains(&comm.as_str()) {
                continue;
            }
            let connections = connections(host, pid, &sockets);
            if connections > 0 {
                processes.insert(pid, Process { comm, connections, threads: threads(host, pid) });
            }
        }
        Self { processes }
    }

    /// What they used since an earlier moment, the busiest first. Those that are gone, or were not there, are not in it.
    pub(crate) fn since(&self, earlier: &Self, seconds: f64) -> Vec<ClientProcess> {
        let one = |(pid, process): (&u32, &Process)| {
            let before = earlier.processes.get(pid)?;
            let share = |after: Duration, before: Duration| {
                after.saturating_sub(before).as_secs_f64() / seconds.max(f64::MIN_POSITIVE)
            };
            let used = process.threads.iter().filter_map(|(id, after)| {
                let before = before.threads.get(id)?;
                let on = share(after.on, before.on);
                Some((after.name.clone(), on, on + share(after.waited, before.waited)))
            });
            let (thread, on, wanted) = used.max_by(|a, b| a.2.total_cmp(&b.2))?;
            let (comm, connections) = (process.comm.clone(), process.connections);
            Some(ClientProcess { pid: *pid, comm, connections, thread, on, wanted })
        };
        let mut all: Vec<ClientProcess> = self.processes.iter().filter_map(one).collect();
        all.sort_by(|a, b| b.wanted.total_cmp(&a.wanted));
        all
    }
}

/// Numbers of the sockets in `/proc/net/tcp` that are connected with one of these.
fn sockets_to(table: &str, osds: &BTreeSet<SocketAddr>) -> Vec<u64> {
    let one = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, remote, state, .., inode] = fields.get(..10)? else { return None };
        let is_one = *state == ESTABLISHED && osds.contains(&socket_addr(remote)?);
        inode.parse().ok().filter(|_| is_one)
    };
    table.lines().skip(1).take(SOCKETS_MAX).filter_map(one).collect()
}

/// An address as the kernel shows it: words in the machine's order, in hexadecimal digits, and a port.
fn socket_addr(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..ip.len() / 8).map(|nth| u32::from_str_radix(ip.get(nth * 8..nth * 8 + 8)?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(in_memory).collect();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

/// The kernel prints a word as this machine's processor has it.
#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel prints a word of an address as the processor reads it"
)]
fn in_memory(word: u32) -> [u8; 4] {
    word.to_ne_bytes()
}

fn connections(host: &Host, pid: u32, sockets: &BTreeSet<u64>) -> usize {
    let folder = host.at(format!("proc/{pid}/fd"));
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    let is_one = |link: std::path::PathBuf| {
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        sockets.contains(&inode).then_some(())
    };
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).filter_map(is_one).count()
}

/// By `schedstat`: how long each thread was on a processor, and how long it waited for one.
fn threads(host: &Host, pid: u32) -> BTreeMap<u32, Thread> {
    let threads = host.names(format!("proc/{pid}/task")).into_iter().filter_map(|name| name.parse().ok());
    let one = |thread: u32| {
        let folder = format!("proc/{pid}/task/{thread}");
        let stat = host.text(format!("{folder}/schedstat"))?;
        let mut ns = stat.split_whitespace().map(|ns| ns.parse().ok().map(Duration::from_nanos));
        let (on, waited) = (ns.next()??, ns.next()??);
        Some((thread, Thread { name: host.text(format!("{folder}/comm")).unwrap_or_default(), on, waited }))
    };
    threads.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a little-endian machine shows it.
    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A001 0100007F:1A90 01 00000000:00000000 00:00000000 00000000     0        0 777 1 0000000000000000 20 4 30 10 -1
   1: 0100007F:A002 0100007F:1A91 01 00000000:00000000 00:00000000 00000000     0        0 778 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:A003 0100007F:1A90 06 00000000:00000000 00:00000000 00000000     0        0 779 1 0000000000000000 20 4 30 10 -1
";

    fn osds() -> BTreeSet<SocketAddr> {
        BTreeSet::from(["127.0.0.1:6800".parse().expect("an address")])
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_found_by_where_they_lead() {
        assert_eq!(sockets_to(TABLE, &osds()), [777]);
        let mapped = "0000000000000000FFFF00000100007F:1A90";
        assert_eq!(socket_addr(mapped), Some("127.0.0.1:6800".parse().expect("an address")));
        assert_eq!(socket_addr("01:1A90"), None);
        assert_eq!(sockets_to("nonsense\n1 2 3\n", &osds()), [0; 0]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_busiest_thread_of_a_client_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at(path).parent().expect("a folder")).expect("a folder");
            std::fs::write(at(path), text).expect("a file");
        };
        write("proc/net/tcp", TABLE);
        for (pid, comm) in [(20, "python3"), (30, "nacre"), (40, "bash")] {
            write(&format!("proc/{pid}/comm"), comm);
            std::fs::create_dir_all(at(&format!("proc/{pid}/fd"))).expect("a folder");
            let inode = if pid == 40 { 1 } else { 777 };
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), at(&format!("proc/{pid}/fd/5")))
                .expect("a link");
        }
        let stat = |thread: u32, on_ms: u64, waited_ms: u64| {
            write(&format!("proc/20/task/{thread}/comm"), &format!("thread{thread}\n"));
            write(
                &format!("proc/20/task/{thread}/schedstat"),
                &format!("{} {} 7\n", on_ms * 1_000_000, waited_ms * 1_000_000),
            );
        };
        let look = || Clients::find(&Host::new(root.path()), &osds());
        stat(20, 1000, 500);
        stat(21, 1000, 500);
        let before = look();
        stat(20, 1100, 500);
        stat(21, 2400, 1050);
        let found = look().since(&before, 2.0);
        assert_eq!(found.len(), 1, "a daemon is no client, nor is who talks to nobody: {found:?}");
        let found = &found[0];
        assert_eq!(
            (found.pid, found.comm.as_str(), found.connections, found.thread.as_str()),
            (20, "python3", 1, "thread21")
        );
        assert!((found.on - 0.7).abs() < 1e-9 && (found.wanted - 0.975).abs() < 1e-9, "{found:?}");
    }
}
