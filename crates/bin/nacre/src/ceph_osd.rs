//! `nacre osd --conf`: one OSD under the monitors of a Ceph cluster. Its `ceph.conf` says where they are, where it listens and where it
//! belongs; its folder has Ceph's names: `fsid`, `ceph_fsid`, `whoami`, `keyring`, `crush_device_class`, and our store.

use crate::allocator;
use crate::args::{Auth, CephArgs, OsdArgs};
use crate::dmcrypt;
use crate::files::Folder;
use crate::locks::Lock;
use crate::machine::{host_name, machine_facts};
use crate::networks;
use crate::osd_folder::OsdFolder;
use crate::sd_notify;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_auth::{CryptoKey, Keyring};
use nacre_client::conf::{ConfFile, expand};
use nacre_client::mon_host::{self, MSGR2_PORT, MonHost};
use nacre_env::outln;
use nacre_osd::{Bind, CephConfig, OsdConfig, StoreConfig, parse_crush_location};
use nacre_types::{AuthName, EntityAddr, EntityKind, OsdId, Uuid};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Options of a `ceph.conf` that are read here, as an OSD starts.
const READ_AT_START: &[&str] = &[
    "admin_socket",
    "auth_client_required",
    "auth_cluster_required",
    "auth_service_required",
    "cluster_addr",
    "cluster_network",
    "crush_location",
    "fsid",
    "keyring",
    "mon_host",
    "ms_bind_port_max",
    "ms_bind_port_min",
    "osd_memory_target",
    "public_addr",
    "public_network",
    "run_dir",
];

/// What a `ceph.conf` has for one OSD.
struct Conf {
    path: PathBuf,
    file: ConfFile,
    options: BTreeMap<String, String>,
    id: OsdId,
}

impl Conf {
    fn read(args: &CephArgs, id: OsdId) -> Result<Self> {
        let path = args.conf.clone();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = ConfFile::parse(&text).with_context(|| path.display().to_string())?;
        let options = file.for_entity("osd", &id.to_string());
        Ok(Self { path, file, options, id })
    }

    fn of(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A value with what its variables stand for.
    fn path_of(&self, name: &str) -> Option<PathBuf> {
        self.of(name).map(|value| self.expanded(value).into())
    }

    fn expanded(&self, text: &str) -> String {
        let (id, host, pid) = (self.id.to_string(), host_name(), std::process::id().to_string());
        let (name, run_dir) = (format!("osd.{id}"), self.of("run_dir").unwrap_or("/var/run/ceph"));
        let variables = [
            ("cluster", "ceph"),
            ("type", "osd"),
            ("id", &id),
            ("name", &name),
            ("host", &host),
            ("pid", &pid),
            ("run_dir", run_dir),
        ];
        expand(text, &variables)
    }

    /// Where it is to answer `ceph daemon`: nowhere where the file says so by an empty value.
    fn admin_socket(&self) -> Option<PathBuf> {
        let text = self.options.get("admin_socket").map_or("$run_dir/$cluster-$name.asok", String::as_str);
        (!text.is_empty()).then(|| self.expanded(text).into())
    }

    fn fsid(&self) -> Result<Uuid> {
        let missing = || format!("{}: no `fsid` in it; it is what `ceph fsid` prints", self.path.display());
        Uuid::parse(self.of("fsid").with_context(missing)?).with_context(missing)
    }

    /// Where the monitors are, by `mon host` or by sections of their own.
    fn monitors(&self) -> Result<Vec<EntityAddr>> {
        let shown = self.path.display();
        let text = match self.of("mon_host") {
            Some(text) => text.to_owned(),
            None => self.file.monitor_sections().join(","),
        };
        let hosts = mon_host::parse(&text).with_context(|| format!("{shown}: mon host = {text}"))?;
        // Who names addresses of messenger v1 alone has monitors that listen for v2 at its port beside it.
        let of_v2: Vec<MonHost> = hosts.iter().filter(|host| !host.is_old).cloned().collect();
        let hosts = if of_v2.is_empty() {
            hosts.into_iter().map(|host| MonHost { port: MSGR2_PORT, ..host }).collect()
        } else {
            of_v2
        };
        let mut monitors = Vec::new();
        let mut unknown = Vec::new();
        for host in hosts {
            match (host.host.as_str(), host.port).to_socket_addrs() {
                Ok(addrs) => monitors.extend(addrs.map(|addr| EntityAddr::msgr2(addr, 0))),
                Err(error) => unknown.push(format!("{}: {error}", host.host)),
            }
        }
        if monitors.is_empty() {
            bail!("{shown}: none of the monitors' names has an address ({})", unknown.join("; "));
        }
        for name in unknown {
            tracing::warn!(name, "a monitor's name has no address; the others are tried");
        }
        Ok(monitors)
    }

    fn bind(&self, listen: Option<IpAddr>, monitors: &[EntityAddr]) -> Result<Bind> {
        let own = networks::own_addresses();
        let by = |addr: &str, network: &str| -> Result<Option<IpAddr>> {
            let shown = |name: &str| name.replace('_', " ");
            match (self.of(addr).filter(|addr| *addr != "-"), self.of(network)) {
                (Some(text), _) => networks::single(&shown(addr), text).map(Some),
                (None, Some(text)) => networks::in_networks(&shown(network), text, &own).map(Some),
                (None, None) => Ok(None),
            }
        };
        let public = match (listen, by("public_addr", "public_network")?) {
            (Some(listen), _) => listen,
            (None, Some(addr)) => addr,
            (None, None) => {
                let monitor = monitors.iter().find_map(|addr| addr.socket);
                networks::towards(monitor.context("no monitor has an address")?)?
            }
        };
        let cluster = by("cluster_addr", "cluster_network")?.unwrap_or(public);
        let port = |name: &str| -> Result<u16> {
            let option = nacre_options::find(name).context("an option of the table")?;
            let text = self.of(name).unwrap_or(option.default);
            text.parse().with_context(|| format!("{}: {name} = {text} is no port", self.path.display()))
        };
        let ports = port("ms_bind_port_min")?..=port("ms_bind_port_max")?;
        if ports.is_empty() || *ports.start() == 0 {
            bail!("{}: ms_bind_port_min to ms_bind_port_max are no ports", self.path.display());
        }
        Ok(Bind { public, cluster, ports: Some(ports) })
    }

    /// How clients prove who they are. We prove it to monitors with a key.
    fn auth(&self) -> Result<Auth> {
        let words =
            |name: &str| self.of(name).unwrap_or("cephx").split([',', ' ', ';']).map(str::to_owned).collect();
        for name in ["auth_cluster_required", "auth_client_required"] {
            let accepted: Vec<String> = words(name);
            if !accepted.iter().any(|word| word == "cephx") {
                bail!(
                    "{}: {name} leaves out cephx, without which this OSD trusts no monitor",
                    self.path.display()
                );
            }
        }
        let accepted: Vec<String> = words("auth_service_required");
        Ok(if accepted.iter().any(|word| word == "none") { Auth::None } else { Auth::Cephx })
    }

    fn crush_location(&self) -> Result<Vec<(String, String)>> {
        if let Some(hook) = self.of("crush_location_hook") {
            bail!(
                "crush_location_hook = {hook}: programs are not asked for it; set `crush location` instead"
            );
        }
        let named = self.of("crush_location").unwrap_or_default();
        let location = parse_crush_location(named).map_err(anyhow::Error::msg)?;
        let default = || vec![("host".to_owned(), host_name()), ("root".to_owned(), "default".to_owned())];
        Ok(if location.is_empty() { default() } else { location })
    }

    /// Says which options of its sections have no effect here.
    fn warn_unread(&self) {
        let is_read = |name: &str| {
            READ_AT_START.contains(&name)
                || nacre_options::find(name).is_some_and(|option| option.readers().contains(&"osd"))
        };
        let own = self.file.own_options("osd", &self.id.to_string());
        let unread: Vec<&str> = own.into_iter().filter(|name| !is_read(name)).collect();
        if !unread.is_empty() {
            let names = unread.join(", ");
            tracing::warn!(
                osd = self.id,
                names,
                "options of ceph.conf that this OSD does not read; see docs/options.md"
            );
        }
    }
}

/// The key of the OSD, by `--keyring`, in its folder, or where the configuration says.
fn key(args: &CephArgs, conf: &Conf, folder: &OsdFolder) -> Result<CryptoKey> {
    // A `keyring` of the section `global` is the clients' as a rule.
    let own = Some(folder.keyring()).filter(|path| path.exists());
    let path =
        args.keyring.clone().or(own).or_else(|| conf.path_of("keyring")).unwrap_or_else(|| folder.keyring());
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let keyring = Keyring::parse(&text).with_context(|| path.display().to_string())?;
    let name = AuthName::new(EntityKind::OSD, conf.id.to_string());
    let entry = keyring.get(&name).with_context(|| format!("{} has no key of {name}", path.display()))?;
    Ok(entry.key.clone())
}

/// The one OSD that `--conf` is for.
fn single_id(options: &OsdArgs) -> Result<OsdId> {
    match options.id[..] {
        [id] => Ok(id),
        _ => bail!("--conf runs one OSD: give one --id"),
    }
}

/// The configuration of an OSD whose store is made. Of an encrypted one it is there when a monitor has given its key; `is_over` ends that wait.
fn config(
    options: &OsdArgs,
    args: &CephArgs,
    folder: &OsdFolder,
    is_over: &dyn Fn() -> bool,
) -> Result<OsdConfig> {
    let id = single_id(options)?;
    let conf = Conf::read(args, id)?;
    let (fsid, monitors) = (conf.fsid()?, conf.monitors()?);
    let uuid = folder.uuid()?;
    folder.check("whoami", &id.to_string(), "it is of another OSD")?;
    folder.check("ceph_fsid", &fsid.to_string(), "it is of another cluster")?;
    let bind = conf.bind(options.listen, &monitors)?;
    let dmcrypt_key = dmcrypt::key_of(folder, uuid, &monitors, is_over)?;
    let target = conf.of("osd_memory_target").map(|text| memory(text, &conf)).transpose()?;
    conf.warn_unread();
    let ceph = CephConfig {
        crush_location: conf.crush_location()?,
        device_class: folder.text("crush_device_class")?,
        options: conf.options.clone(),
    };
    Ok(OsdConfig {
        id,
        uuid,
        fsid,
        key: key(args, &conf, folder)?,
        monitors,
        methods: conf.auth()?.methods(),
        bind,
        ceph: Some(ceph),
        shards: options.shards.map(|shards| shards as usize),
        store: StoreConfig::File {
            folder: folder.path().to_owned(),
            memory_bytes: options.memory.bytes_or(target),
            key: dmcrypt_key,
        },
        host: host_name(),
        machine_facts: machine_facts(),
        admin_socket: conf.admin_socket(),
        process_memory_bytes: 0,
        give_back_memory: allocator::give_back,
    })
}

fn memory(text: &str, conf: &Conf) -> Result<u64> {
    let option = nacre_options::find("osd_memory_target").context("an option of the table")?;
    let wrong = || format!("{}: osd_memory_target = {text}", conf.path.display());
    option.check(text).with_context(wrong)?.parse().with_context(wrong)
}

/// Makes an OSD, or runs one.
pub(crate) fn start(options: &OsdArgs, args: &CephArgs) -> Result<()> {
    if options.mkfs { mkfs(options, args) } else { run(options, args) }
}

/// Makes the folder and the store of an OSD.
fn mkfs(options: &OsdArgs, args: &CephArgs) -> Result<()> {
    if options.shards.is_some_and(|shards| shards > 1) {
        bail!(
            "--shards is for clusters with monitors of nacre's: Ceph's lower pg_num also where PGs of one OSD lie in different parts of its \
             store, and do not ask whether one has room for both"
        );
    }
    let id = single_id(options)?;
    let conf = Conf::read(args, id)?;
    let fsid = conf.fsid()?;
    let folder = OsdFolder::new(&args.data);
    crate::osd::make(&Folder::open(&args.data)?, &folder, (fsid, id), conf.monitors(), options)?;
    folder.write("ceph_fsid", &fsid.to_string())?;
    folder.write("whoami", &id.to_string())?;
    if let Some(class) = &options.crush_device_class {
        folder.write("crush_device_class", class)?;
    }
    Ok(())
}

/// Runs until SIGTERM or Ctrl-C.
fn run(options: &OsdArgs, args: &CephArgs) -> Result<()> {
    let stop = Stop::register()?;
    let folder = OsdFolder::new(&args.data);
    let _lock: Lock = folder.lock()?;
    let config = config(options, args, &folder, &|| stop.is_wanted())?;
    let id = config.id;
    let handle = nacre_osd::start(&config).with_context(|| format!("cannot start osd.{id}"))?;
    let mut said = false;
    let outcome = stop.watch(|| {
        if !said && handle.is_booted() {
            said = true;
            sd_notify::say_ready(&format!("osd.{id}"))?;
            outln!("osd.{id} is up");
        }
        if handle.has_failed() {
            bail!("osd.{id} ended; its last log lines say why");
        }
        Ok(())
    });
    let stopped = handle.stop().context("a thread panicked");
    outcome.and(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    const FSID: &str = "6d2d4f8e-6ac4-4f4c-8c7a-6f3d0c1f1a11";

    fn conf(text: &str) -> Conf {
        let file = ConfFile::parse(text).expect("a whole file");
        Conf { path: "ceph.conf".into(), options: file.for_entity("osd", "3"), file, id: 3 }
    }

    fn shown(monitors: Result<Vec<EntityAddr>>) -> Vec<String> {
        let monitors = monitors.expect("monitors");
        monitors
            .iter()
            .map(|addr| addr.socket.map_or_else(String::new, |socket: SocketAddr| socket.to_string()))
            .collect()
    }

    #[test]
    fn monitors_are_found_by_mon_host_or_by_their_sections() {
        let listed = "mon host = [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] 10.0.0.2 localhost:3301\n";
        let found = shown(conf(listed).monitors());
        assert_eq!(found.get(..2), Some(&["10.0.0.1:3300".to_owned(), "10.0.0.2:3300".to_owned()][..]));
        assert!(found.iter().any(|addr| addr == "127.0.0.1:3301"), "{found:?}");
        assert_eq!(shown(conf("mon host = 10.0.0.1:6789\n").monitors()), ["10.0.0.1:3300"], "v1 alone");
        let sections = "[mon.a]\nmon addr = 10.0.0.1\n[mon.b]\npublic addr = 10.0.0.2:3301\n";
        assert_eq!(shown(conf(sections).monitors()), ["10.0.0.1:3300", "10.0.0.2:3301"]);
        assert!(conf("").monitors().is_err());
    }

    #[test]
    fn addresses_come_from_the_command_line_the_file_or_the_way_to_the_monitors() {
        let monitors = [EntityAddr::msgr2("127.0.0.1:3300".parse().expect("an address"), 0)];
        let bind = |text: &str, listen| conf(text).bind(listen, &monitors);
        let both = "[global]\npublic network = 127.0.0.0/8\n[osd]\ncluster addr = 127.0.0.2\n[osd.3]\nms bind port min = 7000\n";
        let wanted =
            Bind { public: [127, 0, 0, 1].into(), cluster: [127, 0, 0, 2].into(), ports: Some(7000..=7300) };
        assert_eq!(bind(both, None).expect("both"), wanted);
        let listen = Bind { public: [127, 0, 0, 9].into(), ..wanted };
        assert_eq!(bind(both, Some([127, 0, 0, 9].into())).expect("both"), listen);
        let by_route = bind("", None).expect("a way");
        assert_eq!((by_route.public, by_route.cluster), ([127, 0, 0, 1].into(), [127, 0, 0, 1].into()));
        assert_eq!(by_route.ports, Some(6800..=7300));
        for wrong in
            ["ms bind port min = 7301\n", "public addr = 0.0.0.0\n", "cluster network = 203.0.113.0/24\n"]
        {
            assert!(bind(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn place_identity_and_authentication_are_read() {
        let located =
            conf("[osd]\ncrush location = root=nacre host=h1-nacre\n").crush_location().expect("two pairs");
        assert_eq!(located, [("root".into(), "nacre".into()), ("host".into(), "h1-nacre".into())]);
        let default = conf("").crush_location().expect("the host");
        assert_eq!(default.first(), Some(&("host".to_owned(), host_name())));
        assert!(conf("crush location hook = /bin/where\n").crush_location().is_err());
        assert!(conf("crush location = host\n").crush_location().is_err());
        assert_eq!(conf(&format!("fsid = {FSID}\n")).fsid().expect("one").to_string(), FSID);
        assert!(conf("").fsid().is_err());
        assert_eq!(conf("").auth().expect("cephx"), Auth::Cephx);
        assert_eq!(conf("auth service required = cephx, none\n").auth().expect("both"), Auth::None);
        assert!(conf("auth cluster required = none\n").auth().is_err());
        let keyring = conf("keyring = /etc/$cluster.$name.keyring\n").path_of("keyring");
        assert_eq!(keyring, Some("/etc/ceph.osd.3.keyring".into()));
        let socket = |text| conf(text).admin_socket();
        assert_eq!(socket(""), Some("/var/run/ceph/ceph-osd.3.asok".into()));
        assert_eq!(socket("run dir = /run/x\n"), Some("/run/x/ceph-osd.3.asok".into()));
        assert_eq!(socket("[osd]\nadmin socket = /a/$name.asok\n"), Some("/a/osd.3.asok".into()));
        assert_eq!(socket("admin socket =\n"), None);
    }
}
