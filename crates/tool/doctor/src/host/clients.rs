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
    threads: BTreeMap<u32, (String, Duration)>,
}

/// A client process between two moments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientProcess {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    /// With OSDs.
    pub(crate) connections: usize,
    /// The name of its busiest thread, and the share of the time that this was on a processor.
    pub(crate) busiest: (String, f64),
}

impl Clients {
    /// Those that are connected with one of these now. What we may not read of others' processes is left out.
    pub(crate) fn find(host: &Host, osds: &BTreeSet<SocketAddr>, ticks_per_s: u64) -> Self {
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
                processes
                    .insert(pid, Process { comm, connections, threads: threads(host, pid, ticks_per_s) });
            }
        }
        Self { processes }
    }

    /// What they used since an earlier moment, the busiest first. Those that are gone, or were not there, are not in it.
    pub(crate) fn since(&self, earlier: &Self, seconds: f64) -> Vec<ClientProcess> {
        let one = |(pid, process): (&u32, &Process)| {
            let before = earlier.processes.get(pid)?;
            let used = process.threads.iter().filter_map(|(thread, (name, used))| {
                let used = used.saturating_sub(before.threads.get(thread)?.1).as_secs_f64();
                Some((name.clone(), used / seconds.max(f64::MIN_POSITIVE)))
            });
            let busiest = used.max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(ClientProcess {
                pid: *pid,
                comm: process.comm.clone(),
                connections: process.connections,
                busiest,
            })
        };
        let mut all: Vec<ClientProcess> = self.processes.iter().filter_map(one).collect();
        all.sort_by(|a, b| b.busiest.1.total_cmp(&a.busiest.1));
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

fn threads(host: &Host, pid: u32, ticks_per_s: u64) -> BTreeMap<u32, (String, Duration)> {
    let threads = host.names(format!("proc/{pid}/task")).into_iter().filter_map(|name| name.parse().ok());
    let one = |thread: u32| {
        let stat = host.text(format!("proc/{pid}/task/{thread}/stat"))?;
        // The name is in parentheses, and may have any in it.
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = rest.split_whitespace().skip(11);
        let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        Some((thread, (name, Duration::from_secs_f64(ticks as f64 / ticks_per_s.max(1) as f64))))
    };
    threads.filter_map(one).collect()
}

/// The unit of processor time below `/proc`.
#[allow(unsafe_code, reason = "sysconf takes a number and gives one")]
pub(crate) fn ticks_per_s() -> u64 {
    // SAFETY: sysconf(3) takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
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
        let stat = |thread: u32, user: u64| {
            let text = format!("{thread} (a) b) S 1 1 1 0 -1 0 0 0 0 0 {user} 20 0 0 20 0 1 0 9");
            write(&format!("proc/20/task/{thread}/stat"), &text);
        };
        let look = || Clients::find(&Host::new(root.path()), &osds(), 100);
        stat(20, 100);
        stat(21, 100);
        let before = look();
        stat(20, 110);
        stat(21, 295);
        let found = look().since(&before, 2.0);
        assert_eq!(found.len(), 1, "a daemon is no client, nor is who talks to nobody: {found:?}");
        assert_eq!((found[0].pid, found[0].comm.as_str(), found[0].connections), (20, "python3", 1));
        assert!((found[0].busiest.1 - 0.975).abs() < 1e-9 && found[0].busiest.0 == "a) b", "{found:?}");
    }
}
