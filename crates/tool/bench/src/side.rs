//! [`Side`]: one cluster that load is put on. It runs already, or is a `nacre up --processes` of our own.

use crate::cell::Cell;
use crate::driver::Driver;
use crate::load::{Load, Target};
use crate::place::Place;
use crate::spec::{Kept, Messenger, OsdOptions, Running, Setup, Spec};
use crate::stages::Stages;
use crate::{builds, fio, own};
use anyhow::{Context, Result, bail};
use nacre_buf::crc::crc32c;
use nacre_env::errln;
use nacre_types::build_kind::BuildKind;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The PGs of a new pool work after this time, or never.
const PGS_TIMEOUT: Duration = Duration::from_secs(120);
const PGS_INTERVAL: Duration = Duration::from_millis(500);
/// In a cluster of ours an OSD may have so many copies of PGs for each one that a pool has, and so many others.
const PG_COPIES_MAX: u32 = 16;
const PGS_BESIDE: u32 = 250;
/// Of the pool with images' headers, when their data is coded.
const HEADER_PGS: u32 = 8;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Side {
    label: String,
    /// The cluster's configuration with what stock clients need, in our folder.
    pub(crate) conf: PathBuf,
    keyring: PathBuf,
    pub(crate) user: String,
    pub(crate) pool: String,
    pub(crate) pids: Vec<u32>,
    is_own_pool: bool,
    made_pool: bool,
    /// In the names of all that is made.
    id: String,
    setup: Setup,
    pgs: u32,
    bytes: u64,
    driver: Driver,
    /// Images and objects that were made.
    made: Vec<Place>,
    build: Value,
    /// Declared last: ends when all else is done.
    nacre: Option<Nacre>,
}

impl Side {
    /// Starts or finds the cluster; files go to `folder`. Nothing is changed in it before [`Side::prepare`].
    pub(crate) fn open(label: &str, spec: &Spec, folder: &Path, load: &Load) -> Result<Self> {
        let (running, nacre, setup) = match spec {
            Spec::Cluster(running) => (running.clone(), None, Setup::default()),
            Spec::Nacre { binary, options, setup } => {
                let nacre = Nacre::start(binary, options, &folder.join(label))?;
                (nacre.running(), Some(nacre), setup.clone())
            }
            Spec::Same(_) => bail!("same: is for side B"),
        };
        let conf = folder.join(format!("{label}.conf"));
        std::fs::write(&conf, client_conf(&running, folder, &setup)?)
            .with_context(|| conf.display().to_string())?;
        let pids = if running.pids.is_empty() { osd_pids(&running.conf)? } else { running.pids.clone() };
        let id = format!("{}-{label}", std::process::id());
        let mut side = Self {
            label: label.to_owned(),
            conf,
            keyring: running.keyring,
            driver: load.client,
            user: running.user,
            is_own_pool: running.pool.is_none(),
            pool: running.pool.unwrap_or_else(|| format!("nacre-bench-{id}")),
            pids,
            id,
            pgs: setup.pgs.unwrap_or(load.pgs),
            setup,
            bytes: load.size_bytes(),
            made: Vec::new(),
            made_pool: false,
            build: Value::Null,
            nacre,
        };
        let metadata: Value = serde_json::from_str(&side.ceph(&["osd", "metadata", "--format", "json"])?)?;
        let builds = builds::of_osds(&metadata);
        if !load.allow_unoptimised {
            builds::check(&builds, &BuildKind::own(), load.client)?;
        }
        side.build = side.describe_build(spec)?;
        side.build["osd_builds"] = json!(builds);
        Ok(side)
    }

    fn describe_build(&self, spec: &Spec) -> Result<Value> {
        let versions: Value = serde_json::from_str(&self.ceph(&["versions", "--format", "json"])?)?;
        let mut build = json!({
            "versions": versions["overall"],
            "osds": self.osds()?.len(),
            "osd_processes": self.pids.len(),
            "pgs": self.is_own_pool.then_some(self.pgs),
            "shape": self.setup.shape.suffixes(),
            "kept": self.setup.kept.map(|kept| format!("{kept:?}")),
            "messenger": self.setup.messenger.map(Messenger::name),
            "osd_options": self.setup.config,
        });
        if let Spec::Nacre { binary, options, .. } = spec {
            let bytes = std::fs::read(binary).with_context(|| binary.display().to_string())?;
            build["binary"] = json!(binary.display().to_string());
            build["binary_crc32c"] = json!(format!("{:08x}", crc32c(0, &bytes)));
            build["options"] = json!(options);
        }
        Ok(build)
    }

    /// What runs there.
    pub(crate) fn build(&self) -> &Value {
        &self.build
    }

    /// Makes the pool, and what the cells need, and fills it.
    pub(crate) fn prepare(&mut self, cells: &[Cell]) -> Result<()> {
        for (name, value) in &self.setup.config {
            self.ceph(&["config", "set", "osd", name, value])?;
        }
        if let Some(messenger) = self.setup.messenger {
            // Before there are PGs, whose OSDs connect to each other.
            for name in ["ms_cluster_mode", "ms_service_mode"] {
                self.ceph(&["config", "set", "osd", name, messenger.name()])?;
            }
        }
        if self.is_own_pool {
            self.make_pool()?;
        }
        for cell in cells {
            let place = self.place(self.shaped(*cell)?)?;
            if self.made.contains(&place) {
                continue;
            }
            let start = Instant::now();
            self.make(&place)?;
            errln!(
                "{}: {} x {} objects of {} bytes written in {:.1} s",
                self.label,
                place.names.len(),
                place.bytes / place.object_bytes,
                place.object_bytes,
                start.elapsed().as_secs_f64(),
            );
        }
        Ok(())
    }

    /// What the first OSD has for options of these names.
    ///
    /// # Errors
    /// When the cluster is not of our own: they would stay so if the bench were killed.
    pub(crate) fn osd_options(&self, names: &OsdOptions) -> Result<OsdOptions> {
        if self.nacre.is_none() {
            bail!("same: needs a cluster of the bench's own as side A (nacre:..)");
        }
        let osd = self.osds()?.first().map(|id| format!("osd.{id}")).context("a cluster without OSDs")?;
        let values = names.iter().map(|(name, _)| {
            let answer = self.ceph(&["tell", &osd, "config", "get", name, "--format", "json"])?;
            let answer: Value = serde_json::from_str(&answer)?;
            let value = answer[name].as_str().with_context(|| format!("{osd} does not say its {name}"))?;
            Ok((name.clone(), value.to_owned()))
        });
        values.collect()
    }

    /// Sets options of all OSDs that run.
    pub(crate) fn set_osd_options(&self, options: &OsdOptions) -> Result<()> {
        options.iter().try_for_each(|(name, value)| {
            self.ceph(&["tell", "osd.*", "config", "set", name, value]).map(drop)
        })
    }

    fn osds(&self) -> Result<Vec<u64>> {
        Ok(serde_json::from_str(&self.ceph(&["osd", "ls", "--format", "json"])?)?)
    }

    fn make_pool(&mut self) -> Result<()> {
        if self.nacre.is_some() {
            let max = (self.pgs * PG_COPIES_MAX + PGS_BESIDE).to_string();
            self.ceph(&["config", "set", "global", "mon_max_pg_per_osd", &max])?;
        }
        let pool = self.pool.clone();
        match (self.setup.kept, self.driver) {
            (Some(Kept::Coded(..)), Driver::Own) => self.make_coded(&pool)?,
            (Some(Kept::Coded(..)), Driver::Fio) => {
                // An image's header and directory need a pool of copies.
                self.make_replicated(&pool, HEADER_PGS, None)?;
                self.make_coded(&coded_pool(&pool))?;
            }
            (Some(Kept::Copies(copies)), _) => self.make_replicated(&pool, self.pgs, Some(copies))?,
            (None, _) => self.make_replicated(&pool, self.pgs, None)?,
        }
        self.made_pool = true;
        if self.nacre.is_some() {
            self.wait_for_groups()?;
        }
        Ok(())
    }

    fn make_replicated(&self, pool: &str, pgs: u32, copies: Option<u8>) -> Result<()> {
        let pgs = pgs.to_string();
        self.ceph(&["osd", "pool", "create", pool, &pgs, &pgs])?;
        if let Some(copies) = copies {
            self.ceph(&["osd", "pool", "set", pool, "size", &copies.to_string()])?;
            // As Ceph chooses it: one copy may be away, unless there is only one.
            let fewest = (copies - copies / 2).to_string();
            self.ceph(&["osd", "pool", "set", pool, "min_size", &fewest])?;
        }
        // It keeps them while it is measured.
        self.ceph(&["osd", "pool", "set", pool, "pg_autoscale_mode", "off"])?;
        self.rbd(&["pool", "init", pool]).map(drop)
    }

    fn make_coded(&self, pool: &str) -> Result<()> {
        let Some(Kept::Coded(k, m)) = self.setup.kept else { bail!("{pool} has no code") };
        let (pgs, k, m) = (self.pgs.to_string(), format!("k={k}"), format!("m={m}"));
        let profile = ["osd", "erasure-code-profile", "set", pool, &k, &m, "crush-failure-domain=osd"];
        self.ceph(&profile)?;
        self.ceph(&["osd", "pool", "create", pool, &pgs, &pgs, "erasure", pool])?;
        self.ceph(&["osd", "pool", "set", pool, "pg_autoscale_mode", "off"])?;
        self.ceph(&["osd", "pool", "set", pool, "allow_ec_overwrites", "true"])?;
        self.ceph(&["osd", "pool", "application", "enable", pool, "rbd"]).map(drop)
    }

    /// In a cluster of our own nothing else hinders them.
    fn wait_for_groups(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let status: Value = serde_json::from_str(&self.ceph(&["status", "--format", "json"])?)?;
            let (all, states) = (&status["pgmap"]["num_pgs"], &status["pgmap"]["pgs_by_state"]);
            let clean = states.as_array().into_iter().flatten();
            let clean = clean.filter(|state| state["state_name"] == "active+clean");
            let clean: u64 = clean.filter_map(|state| state["count"].as_u64()).sum();
            if clean >= self.pgs.into() && all.as_u64() == Some(clean) {
                return Ok(());
            }
            if start.elapsed() > PGS_TIMEOUT {
                bail!("{clean} of {all} PGs are active+clean after {PGS_TIMEOUT:?}");
            }
            std::thread::sleep(PGS_INTERVAL);
        }
    }

    fn make(&mut self, place: &Place) -> Result<()> {
        if self.driver == Driver::Own {
            self.made.push(place.clone());
            return own::prefill(self.target(place));
        }
        let size = format!("{}B", place.bytes);
        let mut words: Vec<&str> =
            if place.is_unlocked { vec!["--image-feature", "layering"] } else { Vec::new() };
        let coded = coded_pool(&self.pool);
        if matches!(self.setup.kept, Some(Kept::Coded(..))) {
            words.extend(["--data-pool", &coded]);
        }
        self.made.push(Place { names: Vec::new(), ..place.clone() });
        for name in &place.names {
            let image = format!("{}/{name}", self.pool);
            self.rbd(&[&["create", &image, "--size", &size], words.as_slice()].concat())?;
            self.made.last_mut().context("just pushed")?.names.push(name.clone());
        }
        fio::prefill(self.target(place))
    }

    /// A cell of this side's shape.
    pub(crate) fn shaped(&self, cell: Cell) -> Result<Cell> {
        cell.shaped(self.setup.shape)
    }

    /// Where such a cell works.
    pub(crate) fn place(&self, cell: Cell) -> Result<Place> {
        Place::of(cell, &self.id, self.bytes, self.driver)
    }

    pub(crate) fn target<'a>(&'a self, place: &'a Place) -> Target<'a> {
        Target { conf: &self.conf, keyring: &self.keyring, user: &self.user, pool: &self.pool, place }
    }

    /// Stage clocks of all OSDs; `None` when they have none.
    pub(crate) fn stages(&self) -> Result<Option<Stages>> {
        let mut all = Stages::default();
        for id in self.osds()? {
            let dump = self.ceph(&["tell", &format!("osd.{id}"), "perf", "dump", "--format", "json"])?;
            if !all.add(&serde_json::from_str(&dump)?) {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    fn ceph(&self, arguments: &[&str]) -> Result<String> {
        self.stock("ceph", arguments)
    }

    fn rbd(&self, arguments: &[&str]) -> Result<String> {
        self.stock("rbd", arguments)
    }

    fn stock(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(program)
            .arg("-c")
            .arg(&self.conf)
            .args(["--id", &self.user])
            .args(arguments)
            .env_remove("CEPH_ARGS")
            .output()
            .with_context(|| format!("cannot run {program}; is ceph-common installed?"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {program} {} failed: {}", self.label, arguments.join(" "), errors.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Removes what [`Side::prepare`] made; what cannot be removed is told, since the results are there.
    fn tidy_up(&mut self) {
        if self.nacre.is_some() {
            return; // The whole cluster goes.
        }
        let removed = if self.made_pool {
            let pool = &self.pool;
            self.ceph(&["osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it"]).map(drop)
        } else if self.driver == Driver::Own {
            self.made.iter().try_for_each(|place| own::remove(self.target(place)))
        } else {
            let remove = |name: &String| self.rbd(&["rm", &format!("{}/{name}", self.pool)]).map(drop);
            self.made.iter().flat_map(|place| &place.names).try_for_each(remove)
        };
        if let Err(error) = removed {
            errln!("left behind: {error:#}");
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.tidy_up();
    }
}

/// Where the chunks of images in `pool` are.
fn coded_pool(pool: &str) -> String {
    format!("{pool}-coded")
}

/// The cluster's configuration, and that of clients: librbd's cache would hide the cluster.
fn client_conf(running: &Running, folder: &Path, setup: &Setup) -> Result<String> {
    let given = std::fs::read_to_string(&running.conf).with_context(|| running.conf.display().to_string())?;
    let keyring = std::fs::canonicalize(&running.keyring);
    let keyring = keyring.with_context(|| running.keyring.display().to_string())?;
    let (keyring, log) = (keyring.display(), folder.join("client.log"));
    let log = log.display();
    let mode = setup.messenger.map(|mode| format!("ms client mode = {}\n", mode.name())).unwrap_or_default();
    Ok(format!(
        "{given}\n[client]\nkeyring = {keyring}\nlog file = {log}\nadmin socket =\nrbd cache = false\n{mode}"
    ))
}

/// The processes that the pid files of OSDs beside a configuration name.
fn osd_pids(conf: &Path) -> Result<Vec<u32>> {
    let conf = std::fs::canonicalize(conf).with_context(|| conf.display().to_string())?;
    let folder = conf.parent().unwrap_or(Path::new("/")).join("run");
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_osd = name.to_str().is_some_and(|name| name.starts_with("osd.") && name.ends_with(".pid"));
        let text = if is_osd { std::fs::read_to_string(entry.path()).unwrap_or_default() } else { continue };
        let pid =
            text.trim().parse().with_context(|| format!("{} names no process", entry.path().display()))?;
        pids.push(pid);
    }
    pids.sort_unstable();
    Ok(pids)
}

/// A cluster of our own.
#[derive(Debug)]
struct Nacre {
    child: Child,
    folder: PathBuf,
}

impl Nacre {
    fn start(binary: &Path, options: &[String], folder: &Path) -> Result<Self> {
        let child = Command::new(binary)
            .args(["up", "--processes", "--dir"])
            .arg(folder)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut nacre = Self { child, folder: folder.to_owned() };
        let output = nacre.child.stdout.take().context("a pipe was asked for")?;
        let mut lines = BufReader::new(output).lines();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("ready"));
        if !is_ready {
            bail!("{} up did not become ready; it said why above", binary.display());
        }
        // It says little more; that must be read, or it would stop in the middle of a line one day.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(nacre)
    }

    fn running(&self) -> Running {
        Running {
            conf: self.folder.join("ceph.conf"),
            keyring: self.folder.join("keyring"),
            user: "admin".to_owned(),
            pool: None,
            pids: Vec::new(),
        }
    }
}

impl Drop for Nacre {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        if !told.is_ok_and(|status| status.success()) {
            // It has ended already, or `kill` is missing; then at least we do not wait for ever.
            let _ended = self.child.kill();
        }
        let _status = self.child.wait();
    }
}
