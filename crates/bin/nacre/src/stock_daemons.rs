//! `nacre up --rgw --mds`: a radosgw and a ceph-mds of Debian's packages beside the cluster, as child processes.

use crate::args::UpArgs;
use crate::ask::Admin;
use crate::files::Folder;
use crate::signals::{self, START_POLL, Stop};
use crate::supervisor::{self, RESTART_DELAY};
use anyhow::{Context, Result, bail};
use nacre_env::outln;
use nacre_env::real::private;
use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A radosgw makes its pools and a metadata server its journal first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between questions to the monitors.
const ASK_POLL: Duration = Duration::from_millis(200);
/// A metadata server that has not ended after this time is killed; a radosgw lets requests on their way come to their end.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const RGW: &str = "rgw.a";
const MDS: &str = "mds.a";
/// The file system that a cluster gets that has none, with pools as `ceph fs volume create` names them.
const FILE_SYSTEM: &str = "cephfs";
/// Enough for the three OSDs of one machine.
const FILE_SYSTEM_PG_NUM: u32 = 16;

/// One of them.
struct Daemon {
    /// As in `run/NAME.pid` and `log/NAME.log`.
    name: &'static str,
    program: &'static str,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    restart_at: Option<Stamp>,
}

/// Those that were asked for.
pub(crate) struct StockDaemons {
    daemons: Vec<Daemon>,
    clock: RealClock,
    /// A daemon that ends is started again.
    restart: bool,
    s3: Option<SocketAddr>,
}

impl StockDaemons {
    /// Looks before anything is made whether the programs are here, and the port of S3 free.
    pub(crate) fn check(options: &UpArgs) -> Result<()> {
        let wanted = [(options.rgw.is_some(), "--rgw", "radosgw"), (options.mds, "--mds", "ceph-mds")];
        for (_, option, program) in wanted.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
            let runs =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !runs.is_ok_and(|status| status.success()) {
                bail!(
                    "{option} starts Debian's {program}, which does not run here: apt-get install {program}"
                );
            }
        }
        if let Some(port) = options.rgw {
            let address = SocketAddr::new(options.listen, port);
            TcpListener::bind(address).with_context(|| {
                format!("--rgw cannot listen on {address}; --rgw PORT takes another port")
            })?;
        }
        Ok(())
    }

    pub(crate) fn new(options: &UpArgs) -> Self {
        Self { daemons: Vec::new(), clock: RealClock::start(), restart: options.restart, s3: None }
    }

    /// Starts what was asked for, and waits until it serves or `stop` wants the end.
    pub(crate) fn start(&mut self, folder: &Folder, options: &UpArgs, stop: &Stop) -> Result<()> {
        if options.rgw.is_none() && !options.mds {
            return Ok(());
        }
        let mut admin = Admin::new(folder)?;
        if options.mds {
            self.start_mds(folder, &mut admin)?;
        }
        if let Some(port) = options.rgw {
            self.start_rgw(folder, &mut admin, options.listen, port)?;
        }
        if options.mds {
            self.wait(MDS, stop, ASK_POLL, || {
                let stat = admin.ask(r#"{"prefix":"mds stat","format":"json"}"#)?;
                Ok(String::from_utf8_lossy(&stat.data).contains("up:active"))
            })?;
        }
        if let Some(address) = self.s3 {
            self.wait(RGW, stop, START_POLL, || Ok(TcpStream::connect(address).is_ok()))?;
        }
        Ok(())
    }

    fn start_mds(&mut self, folder: &Folder, admin: &mut Admin) -> Result<()> {
        let caps = r#"["mon","profile mds","mgr","profile mds","osd","allow *","mds","allow *"]"#;
        let home = entity_home(folder, admin, MDS, MDS, caps)?;
        let known = admin.ask(r#"{"prefix":"fs ls","format":"json"}"#)?;
        if String::from_utf8_lossy(&known.data).trim() == "[]" {
            let (metadata, data) =
                (format!("cephfs.{FILE_SYSTEM}.meta"), format!("cephfs.{FILE_SYSTEM}.data"));
            for pool in [&metadata, &data] {
                let create = r#""prefix":"osd pool create""#;
                admin.ask(&format!(r#"{{{create},"pool":"{pool}","pg_num":{FILE_SYSTEM_PG_NUM}}}"#))?;
            }
            let new = format!(r#""fs_name":"{FILE_SYSTEM}","metadata":"{metadata}","data":"{data}""#);
            admin.ask(&format!(r#"{{"prefix":"fs new",{new}}}"#)).context("making a file system")?;
        }
        let own = [option("-i", "a"), option("--mds-data", home.display())];
        self.launch(folder, MDS, "ceph-mds", own.concat())
    }

    fn start_rgw(&mut self, folder: &Folder, admin: &mut Admin, listen: IpAddr, port: u16) -> Result<()> {
        let caps = r#"["mon","allow rw","mgr","allow rw","osd","allow rwx"]"#;
        let entity = format!("client.{RGW}");
        let home = entity_home(folder, admin, RGW, &entity, caps)?;
        let address = SocketAddr::new(listen, port);
        let frontend = format!("beast endpoint={address}");
        let own = [
            option("-n", &entity),
            option("--rgw-data", home.display()),
            option("--rgw-frontends", frontend),
        ];
        self.s3 = Some(address);
        self.launch(folder, RGW, "radosgw", own.concat())
    }

    fn launch(
        &mut self,
        folder: &Folder,
        name: &'static str,
        program: &'static str,
        own: Vec<String>,
    ) -> Result<()> {
        let log = folder.log_file(name)?;
        let run = folder.run_folder()?;
        let common = [
            option("-c", folder.conf().display()),
            option("--keyring", folder.path().join(name).join("keyring").display()),
            option("--log-file", log.display()),
            option("--run-dir", run.display()),
            option("--admin-socket", run.join(format!("{name}.asok")).display()),
        ];
        let arguments = [vec!["-f".to_owned()], common.concat(), own].concat();
        let mut daemon = Daemon { name, program, arguments, log, child: None, restart_at: None };
        daemon.spawn(folder)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Waits until `serves` says so.
    fn wait(
        &mut self,
        name: &str,
        stop: &Stop,
        poll: Duration,
        mut serves: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let deadline = self.clock.now() + START_TIMEOUT;
        while !stop.is_wanted() && !serves()? {
            let Some(daemon) = self.daemons.iter_mut().find(|daemon| daemon.name == name) else { break };
            if let Some(status) = daemon.ended() {
                bail!("{name} ended while starting: {status}\n{}", supervisor::last_lines(&daemon.log));
            }
            if self.clock.now() > deadline {
                bail!("{name} does not serve after {START_TIMEOUT:?}; its log is {}", daemon.log.display());
            }
            std::thread::sleep(poll);
        }
        Ok(())
    }

    /// Says which have ended, and starts them again if that is wanted.
    pub(crate) fn check_alive(&mut self, folder: &Folder) -> Result<()> {
        let now = self.clock.now();
        for daemon in &mut self.daemons {
            if let Some(status) = daemon.ended() {
                outln!("{} ended: {status}; its log is {}", daemon.name, daemon.log.display());
                if self.restart {
                    daemon.restart_at = Some(now + RESTART_DELAY);
                } else {
                    outln!("  to start it again: {} {}", daemon.program, daemon.arguments.join(" "));
                }
            }
            if daemon.restart_at.is_some_and(|at| now >= at) {
                daemon.restart_at = None;
                daemon.spawn(folder)?;
                outln!("{} started again", daemon.name);
            }
        }
        Ok(())
    }

    /// Ends them, before the OSDs that they need.
    pub(crate) fn stop(&mut self, folder: &Folder) {
        let deadline = self.clock.now() + STOP_TIMEOUT;
        for daemon in &mut self.daemons {
            if daemon.ended().is_none()
                && let Some(child) = &daemon.child
            {
                signals::send("-TERM", child.id(), daemon.name);
            }
        }
        for daemon in &mut self.daemons {
            while daemon.ended().is_none() && daemon.child.is_some() && self.clock.now() < deadline {
                std::thread::sleep(START_POLL);
            }
            if let Some(child) = &mut daemon.child {
                outln!("{} does not stop within {STOP_TIMEOUT:?} and is killed", daemon.name);
                if let Err(error) = child.kill().and_then(|()| child.wait()) {
                    tracing::error!(%error, daemon = daemon.name, "cannot kill");
                }
            }
            folder.remove_pid(daemon.name);
        }
    }

    /// How to use what serves.
    pub(crate) fn print_welcome(&self, client: &str) {
        if let Some(address) = self.s3 {
            outln!("  S3 at http://{address}, for users that are made so:");
            outln!("  radosgw-admin {client} user create --uid NAME --display-name NAME");
        }
        if self.daemons.iter().any(|daemon| daemon.name == MDS) {
            outln!("  ceph-fuse {client} --client-fs {FILE_SYSTEM} FOLDER");
        }
    }
}

impl Daemon {
    fn spawn(&mut self, folder: &Folder) -> Result<()> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments);
        let child = supervisor::spawn(command, &self.log)
            .with_context(|| format!("cannot start {}", self.program))?;
        let pid = child.id();
        self.child = Some(child);
        // These programs write none in the foreground.
        folder.write_pid_of(self.name, pid)
    }

    /// How the child ended, once.
    fn ended(&mut self) -> Option<ExitStatus> {
        supervisor::ended(&mut self.child)
    }
}

/// The folder of a daemon with its keyring in it: the entity is made if it is not there.
fn entity_home(folder: &Folder, admin: &mut Admin, name: &str, entity: &str, caps: &str) -> Result<PathBuf> {
    let made = admin.ask(&format!(r#"{{"prefix":"auth get-or-create","entity":"{entity}","caps":{caps}}}"#));
    let keyring = made.with_context(|| format!("making the key of {entity}"))?.data;
    let home = folder.path().join(name);
    private::make_folder(&home).with_context(|| home.display().to_string())?;
    let path = home.join("keyring");
    private::write(&path, &keyring).with_context(|| path.display().to_string())?;
    Ok(home)
}

fn option(name: &str, value: impl std::fmt::Display) -> Vec<String> {
    vec![name.to_owned(), value.to_string()]
}
